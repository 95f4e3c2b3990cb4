//go:build !unix || aix || solaris

package natsembed

import "os"

// lock does nothing here: it is up to who starts servers to give each its own store.
func lock(string) (*os.File, error) { return nil, nil } //nolint:nilnil // there is no lock and nothing is wrong
