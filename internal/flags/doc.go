// Package flags holds the flags that several commands share, so that one setting has one name, one default and one
// sentence of help wherever it is asked for. A command embeds them beside its own.
package flags
