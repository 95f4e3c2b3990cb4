//go:build unix && !aix && !solaris

package natsembed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lock keeps a second server out of the store, which the server itself does not: two would lose each other's messages.
// The lock goes with the process, however it ends.
func lock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("natsembed: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("natsembed: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) //nolint:gosec // a descriptor is small
	if err == nil {
		return file, nil
	}
	_ = file.Close() // nothing was written to it
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("natsembed: the store %s is in use by another server", dir)
	}
	return nil, fmt.Errorf("natsembed: lock the store %s: %w", dir, err)
}
