//go:build !integration

package sample_test

// thorough is set in the integration tests, where a minute does not matter.
const thorough = false
