package core

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// retries are those that a profiles file may ask for.
var retries = rapid.Custom(func(t *rapid.T) Retry {
	initial := rapid.Int64Range(int64(time.Millisecond), int64(24*time.Hour)).Draw(t, "initial")
	return Retry{
		MaxAttempts: rapid.IntRange(1, 100).Draw(t, "max attempts"),
		Initial:     time.Duration(initial),
		Max:         time.Duration(rapid.Int64Range(initial, int64(24*time.Hour)).Draw(t, "max")),
	}
})

func TestBackoffIsThePauseGiveOrTakeAFifth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		retry := retries.Draw(t, "retry")
		dispatch := rapid.StringMatching(`pwh_sha256_[0-9a-f]{64}`).Draw(t, "dispatch")
		pause := retry.Initial
		for attempt := 1; attempt <= retry.MaxAttempts; attempt++ {
			pause = min(pause, retry.Max)
			got := retry.backoff(dispatch, attempt)
			if got < pause-pause/5 || got > pause+pause/5 {
				t.Fatalf("after attempt %d: %s, want %s ± 20 %%", attempt, got, pause)
			}
			if again := retry.backoff(dispatch, attempt); again != got {
				t.Fatalf("after attempt %d: %s, and again %s", attempt, got, again)
			}
			pause *= 2
		}
	})
}

func TestHorizonIsNotExceededByAnySumOfBackoffs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		retry := retries.Draw(t, "retry")
		dispatch := rapid.StringMatching(`pwh_sha256_[0-9a-f]{64}`).Draw(t, "dispatch")
		var sum time.Duration
		for attempt := 1; attempt < retry.MaxAttempts; attempt++ {
			sum += retry.backoff(dispatch, attempt)
		}
		if horizon := retry.Horizon(); sum > horizon {
			t.Fatalf("the attempts are spread over %s, past the horizon of %s", sum, horizon)
		}
	})
}

// 1+2+4+…+256 s are 511 s, and twice 300 s more; a fifth on top.
func TestHorizonOfTheDefaultRetry(t *testing.T) {
	if got, want := DefaultRetry.Horizon(), (511+600)*time.Second*6/5; got != want {
		t.Errorf("Horizon() = %s, want %s", got, want)
	}
}

func TestJitterSpreadsDispatchesOverTheWholeFifth(t *testing.T) {
	const dispatches = 2000
	low, high := 0, 0
	for i := range dispatches {
		switch wait := DefaultRetry.backoff(fmt.Sprintf("pwh_sha256_%064x", i), 1); {
		case wait < 900*time.Millisecond:
			low++
		case wait > 1100*time.Millisecond:
			high++
		}
	}
	// A quarter each if they are spread evenly.
	if low < dispatches/5 || high < dispatches/5 {
		t.Errorf("of %d dispatches %d wait less than 0.9 s and %d more than 1.1 s, want about %d each",
			dispatches, low, high, dispatches/4)
	}
}
