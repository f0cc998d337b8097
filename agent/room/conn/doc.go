// Package conn is the connection of a participant to a LiveKit room over any number of sessions of the client library.
//
// A [Connection] joins, leaves, and joins again after each loss; a [Session] is the life of one room of the library. The package also
// makes and reads access tokens, keeps media sockets on loopback, and reaches the library's unexported parts. It knows neither tracks
// nor what is sent.
package conn
