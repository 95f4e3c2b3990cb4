package core

import (
	"hash/fnv"
	"strconv"
	"time"

	"github.com/afterwrite/afterwrite/events"
)

// jitterParts: the jitter is up to one fifth either way.
const jitterParts = 5

// pause is the wait after the given attempt, before jitter: Initial doubling up to Max.
func (r Retry) pause(attempt int) time.Duration {
	pause := r.Initial
	for range attempt - 1 {
		if pause *= 2; pause >= r.Max {
			return r.Max
		}
	}
	return min(pause, r.Max)
}

// backoff is the wait after the given attempt of a dispatch. Its jitter of ±20 % is derived from both, so that a
// herd of dispatches spreads out and a replay waits just as long.
func (r Retry) backoff(dispatch events.DispatchID, attempt int) time.Duration {
	pause := r.pause(attempt)
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(dispatch + "." + strconv.Itoa(attempt))) // a hash.Hash never fails
	const steps = 2001                                                // from −1000 to +1000 thousandths of a fifth
	step := int64(hash.Sum64()%steps) - steps/2
	return pause + time.Duration(int64(pause)/jitterParts*step/(steps/2))
}
