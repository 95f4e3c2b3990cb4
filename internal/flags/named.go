package flags

import (
	"errors"
	"strings"
)

// named gives the flags that set the fields of streams.Settings and dispatcher.Options. What is installed sets the others.
var named = strings.NewReplacer(
	"Storage", "--storage",
	"Replicas", "--replicas",
	"ReceiptsAge", "--receipts-age",
	"JournalAge", "--journal-age",
	"IntentsAge", "--intents-age",
	"ExecutionsAge", "--executions-age",
	"DuplicateWindow", "--duplicate-window",
	"ReceiptsMaxBytes", "--receipts-size",
	"JournalMaxBytes", "--journal-size",
	"IntentsMaxBytes", "--intents-size",
	"ExecutionsMaxBytes", "--executions-size",
	"AckWait", "--ack-wait",
	"MaxAckPending", "--max-ack-pending",
	"RetryHorizon", "the longest retry of a profile",
	"MaxReceiptAge", "--max-receipt-age",
	"SkewAllowance", "--skew-allowance",
	"Lanes", "--lanes",
	"ReceiptsInFlight", "--receipts-in-flight",
	"TripAfter", "--trip-after",
)

// Named says what settings refused in the names of their flags, for whoever set them knows those and no fields.
func Named(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(named.Replace(err.Error()))
}
