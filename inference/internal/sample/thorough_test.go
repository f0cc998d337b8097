//go:build integration

package sample_test

// thorough runs all cases.
const thorough = true
