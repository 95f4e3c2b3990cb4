//go:build !unix

package observability

import "context"

// LevelBySignal does nothing where there is no SIGUSR1.
func LevelBySignal(context.Context, *Logger) {}
