package nano

// Version is the version of the checkpoint.
const Version = version
