// Package kubetest installs the chart with Helm's own library into a real Kubernetes API server, changes it, rolls it
// back and removes it, in a namespace that enforces the Pod Security standard "restricted", as a user who has the rights
// of examples/installer-role.yaml and no others.
//
// The server is the program in apiserver, which knows every kind and refuses what a cluster refuses, and runs nothing.
// What Helm waits for is therefore done by the controllers of this package: they create the pods that a cluster would
// create, so that admission judges them, and report them as ready. It shows what the API server makes of the chart, and
// not that a container starts; the programs are run by the module in ../test.
//
// It is a module of its own, and so is the server: they need different versions of Kubernetes's libraries, and nobody
// else needs any.
package kubetest
