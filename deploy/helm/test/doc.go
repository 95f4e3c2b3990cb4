// Package test holds the chart to what it promises: it is rendered by Helm's own library for a table of values, every
// object is decoded strictly into its API type, and what the objects say is held against the programs they run.
//
// It is a module of its own so that nobody who uses Afterwrite needs Helm or Kubernetes.
package test
