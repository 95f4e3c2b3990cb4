package dispatcher

import "github.com/afterwrite/afterwrite/internal/observability"

// Beside [observability.NotStarted], what keeps the dispatcher from being ready.
const (
	// topologyDiffers: a stream or consumer is missing or is not as it should be.
	topologyDiffers observability.Condition = "topology_differs"
	// brokerUnreadable: the broker does not answer.
	brokerUnreadable observability.Condition = "broker_unreadable"
	// brokerRefuses: it refused or did not answer a load or a write, a moment ago.
	brokerRefuses observability.Condition = "broker_refuses"
	// streamFilling: a stream is over 80 % full.
	streamFilling observability.Condition = "stream_filling"
	// receiptsAging: the oldest receipt nobody took is older than half the age at which it is dropped.
	receiptsAging observability.Condition = "receipts_aging"
	// journalGone: the journal is not the one it was.
	journalGone observability.Condition = "journal_gone"
)

func newHealth() *observability.Health {
	return observability.NewHealth(topologyDiffers, brokerUnreadable, brokerRefuses, streamFilling, receiptsAging, journalGone)
}
