package core_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

// fixtureData is raw data: text, or bytes that are no text, and on demand the spaces that follow it.
type fixtureData struct {
	Data     string `json:"data"`
	Base64   []byte `json:"data_base64,omitzero"`
	PaddedTo int    `json:"data_padded_to,omitzero"`
}

func (d fixtureData) raw(p permutation) []byte {
	data := []byte(d.Data)
	if d.Base64 != nil {
		data = bytes.Clone(d.Base64)
	}
	if p.data {
		data = reversed(data, p.intents)
	}
	return append(data, bytes.Repeat([]byte(" "), max(0, d.PaddedTo-len(data)))...)
}

// commandKinds reads each kind of command.
var commandKinds = map[string]func(testing.TB, *given, jsontext.Value, permutation) core.Command{
	"admit_receipt": func(tb testing.TB, _ *given, value jsontext.Value, p permutation) core.Command {
		var c struct {
			fixtureKind
			fixtureData
			SubjectKind events.EventKind `json:"subject_kind"`
			BadEnvelope bool             `json:"bad_envelope"`
			MessageID   string           `json:"message_id"`
			Deliveries  int              `json:"deliveries"`
			StreamTime  time.Time        `json:"stream_time"`
			Now         time.Time        `json:"now"`
		}
		strictly(tb, value, &c)
		return core.AdmitReceipt{
			SubjectKind: c.SubjectKind, BadEnvelope: c.BadEnvelope, Data: c.raw(p), MessageID: c.MessageID,
			Deliveries: c.Deliveries, StreamTime: c.StreamTime, Now: c.Now,
		}
	},
	"refuse_poisoned": func(tb testing.TB, _ *given, value jsontext.Value, p permutation) core.Command {
		var c struct {
			fixtureKind
			fixtureData
			Now time.Time `json:"now"`
		}
		strictly(tb, value, &c)
		return core.RefusePoisoned{Data: c.raw(p), Now: c.Now}
	},
	"refuse_registration": func(tb testing.TB, _ *given, value jsontext.Value, _ permutation) core.Command {
		var c struct {
			fixtureKind
			File   string               `json:"file"`
			Hook   events.Optional      `json:"hook_id"`
			Reason events.RefusalReason `json:"reason"`
			Now    time.Time            `json:"now"`
		}
		strictly(tb, value, &c)
		return core.RefuseRegistration{File: []byte(c.File), Hook: string(c.Hook), Reason: c.Reason, Now: c.Now}
	},
	"begin_dispatch": func(tb testing.TB, g *given, value jsontext.Value, _ permutation) core.Command {
		var c struct {
			fixtureKind
			Dispatch   jsontext.Value  `json:"dispatch"`
			Fresh      bool            `json:"fresh"`
			Deliveries int             `json:"deliveries"`
			Pressure   events.Optional `json:"pressure"`
			Now        time.Time       `json:"now"`
		}
		strictly(tb, value, &c)
		return core.BeginDispatch{
			Dispatch: g.dispatch(tb, c.Dispatch), Fresh: c.Fresh, Deliveries: c.Deliveries,
			Pressure: core.Pressure(c.Pressure), Now: c.Now,
		}
	},
	"decide_attempt": func(tb testing.TB, g *given, value jsontext.Value, p permutation) core.Command {
		var c struct {
			fixtureKind
			Dispatch jsontext.Value `json:"dispatch"`
			Fresh    bool           `json:"fresh"`
			Call     struct {
				Attempt     int    `json:"attempt"`
				Invocations int    `json:"invocations"`
				Base        int    `json:"base"`
				Timeout     millis `json:"timeout_ms"`
			} `json:"call"`
			Reply struct {
				Kind core.ReplyKind `json:"kind"`
				fixtureData
			} `json:"reply"`
			Now time.Time `json:"now"`
		}
		strictly(tb, value, &c)
		d := g.dispatch(tb, c.Dispatch)
		return core.DecideAttempt{
			Dispatch: d, Fresh: c.Fresh,
			Call: core.Call{
				Dispatch: d, Attempt: c.Call.Attempt, Invocations: c.Call.Invocations, Base: c.Call.Base,
				Timeout: c.Call.Timeout.duration(),
			},
			Reply: core.Reply{Kind: c.Reply.Kind, Data: c.Reply.raw(p)},
			Now:   c.Now,
		}
	},
	"wake_dispatch": func(tb testing.TB, g *given, value jsontext.Value, _ permutation) core.Command {
		var c struct {
			fixtureKind
			Dispatch   string          `json:"dispatch"`
			Deliveries int             `json:"deliveries"`
			Pressure   events.Optional `json:"pressure"`
			WokenAt    time.Time       `json:"woken_at"`
			Now        time.Time       `json:"now"`
		}
		strictly(tb, value, &c)
		return core.WakeDispatch{
			Key: g.key(tb, c.Dispatch), Deliveries: c.Deliveries, Pressure: core.Pressure(c.Pressure), WokenAt: c.WokenAt, Now: c.Now,
		}
	},
	"prepare_redrive": func(tb testing.TB, g *given, value jsontext.Value, _ permutation) core.Command {
		var c fixtureRedrive
		strictly(tb, value, &c)
		return core.PrepareRedrive{Key: g.key(tb, c.Dispatch), Now: c.Now}
	},
	"redrive_dispatch": func(tb testing.TB, g *given, value jsontext.Value, _ permutation) core.Command {
		var c fixtureRedrive
		strictly(tb, value, &c)
		return core.RedriveDispatch{Key: g.key(tb, c.Dispatch), Now: c.Now}
	},
}

type fixtureKind struct {
	Kind string `json:"kind"`
}

type fixtureRedrive struct {
	fixtureKind
	Dispatch string    `json:"dispatch"`
	Now      time.Time `json:"now"`
}

func (g *given) command(tb testing.TB, value jsontext.Value, p permutation) core.Command {
	tb.Helper()
	var c fixtureKind
	if err := json.Unmarshal(value, &c); err != nil {
		tb.Fatal(err)
	}
	read, ok := commandKinds[c.Kind]
	if !ok {
		tb.Fatalf("no command is of kind %q", c.Kind)
	}
	return read(tb, g, value, p)
}
