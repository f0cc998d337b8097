//go:build integration

package vision_test

// thorough runs all cases.
const thorough = true
