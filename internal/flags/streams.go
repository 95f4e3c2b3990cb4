package flags

import (
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/afterwrite/afterwrite/streams"
)

// Streams are the settings of the topology. Who applies them and who checks them must be told the same, so that each
// has its own environment variable.
type Streams struct {
	Storage  streams.Storage `env:"AFTERWRITE_STORAGE" enum:"file,memory" default:"${storage}" help:"Where the broker keeps the streams: file or memory."`
	Replicas int             `env:"AFTERWRITE_REPLICAS" default:"${replicas}" help:"Replicas of every stream: 1, 3 or 5."`

	ReceiptsAge   time.Duration `env:"AFTERWRITE_RECEIPTS_AGE" default:"${receiptsAge}" help:"How long a receipt waits for a dispatcher."`
	JournalAge    time.Duration `env:"AFTERWRITE_JOURNAL_AGE" default:"${journalAge}" help:"How long a decision is known, and so how long a dispatch is done only once."`
	IntentsAge    time.Duration `env:"AFTERWRITE_INTENTS_AGE" default:"${intentsAge}" help:"How long an intent waits for an executor."`
	ExecutionsAge time.Duration `env:"AFTERWRITE_EXECUTIONS_AGE" default:"${executionsAge}" help:"How long an execution is known, and so how long it is done only once."`

	DuplicateWindow time.Duration `env:"AFTERWRITE_DUPLICATE_WINDOW" default:"${duplicateWindow}" help:"How long the broker drops a receipt that it has already taken; at least 100ms."`

	ReceiptsSize   Size `env:"AFTERWRITE_RECEIPTS_SIZE" default:"${receiptsSize}" help:"Size at which the stream of receipts refuses more."`
	JournalSize    Size `env:"AFTERWRITE_JOURNAL_SIZE" default:"${journalSize}" help:"Size at which the journal refuses more."`
	IntentsSize    Size `env:"AFTERWRITE_INTENTS_SIZE" default:"${intentsSize}" help:"Size at which the stream of intents refuses more."`
	ExecutionsSize Size `env:"AFTERWRITE_EXECUTIONS_SIZE" default:"${executionsSize}" help:"Size at which the stream of executions refuses more."`

	AckWait       time.Duration `env:"AFTERWRITE_ACK_WAIT" default:"${ackWait}" help:"How long a dispatcher may be silent about a message before another one gets it."`
	MaxAckPending int           `env:"AFTERWRITE_MAX_ACK_PENDING" default:"${maxAckPending}" help:"Messages of one consumer that may be in work at once, over all dispatchers."`
}

// StreamsVars are the variables in the tags of [Streams]: the defaults that package streams has.
func StreamsVars() kong.Vars {
	s := streams.Settings{}.WithDefaults()
	return kong.Vars{
		"storage":         string(s.Storage),
		"replicas":        strconv.Itoa(s.Replicas),
		"receiptsAge":     Duration(s.ReceiptsAge),
		"journalAge":      Duration(s.JournalAge),
		"intentsAge":      Duration(s.IntentsAge),
		"executionsAge":   Duration(s.ExecutionsAge),
		"duplicateWindow": Duration(s.DuplicateWindow),
		"receiptsSize":    Size(s.ReceiptsMaxBytes).String(),
		"journalSize":     Size(s.JournalMaxBytes).String(),
		"intentsSize":     Size(s.IntentsMaxBytes).String(),
		"executionsSize":  Size(s.ExecutionsMaxBytes).String(),
		"ackWait":         Duration(s.AckWait),
		"maxAckPending":   strconv.Itoa(s.MaxAckPending),
	}
}

// Settings are the settings that the flags say. A 0 is not the default here, so Validate refuses what it must.
func (f Streams) Settings() streams.Settings {
	return streams.Settings{
		Storage:            f.Storage,
		Replicas:           f.Replicas,
		ReceiptsAge:        f.ReceiptsAge,
		JournalAge:         f.JournalAge,
		IntentsAge:         f.IntentsAge,
		ExecutionsAge:      f.ExecutionsAge,
		DuplicateWindow:    f.DuplicateWindow,
		ReceiptsMaxBytes:   int64(f.ReceiptsSize),
		JournalMaxBytes:    int64(f.JournalSize),
		IntentsMaxBytes:    int64(f.IntentsSize),
		ExecutionsMaxBytes: int64(f.ExecutionsSize),
		AckWait:            f.AckWait,
		MaxAckPending:      f.MaxAckPending,
	}
}

// Duration writes a duration without the parts that are zero: 72h, 1m30s.
func Duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
