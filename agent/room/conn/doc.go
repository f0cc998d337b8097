// Package conn is the connection of a participant to a LiveKit room over any number of sessions of the client library.
//
// A [Connection] joins, leaves, and joins again after each loss. A [Session] is the lifetime of one room of the library. The package
// also makes and reads access tokens, keeps media sockets on loopback, and accesses unexported parts of the library. It knows neither
// tracks nor their content.
package conn
