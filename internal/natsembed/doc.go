// Package natsembed runs NATS servers with JetStream inside this process: one for hookctl's demo and dev, one for
// every test that needs a broker, and a whole cluster for the tests of replication.
//
// It is the only package that links the server; an architecture test holds this. It knows nothing of Afterwrite's
// streams: whoever starts a server applies them.
package natsembed
