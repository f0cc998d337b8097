package live

// At is the time of a sample.
var At = at
