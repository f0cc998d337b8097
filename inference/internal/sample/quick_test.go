//go:build !integration

package sample_test

// thorough is true in the integration tests, which may take a minute.
const thorough = false
