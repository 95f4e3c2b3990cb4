package events_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/afterwrite/afterwrite/events"
)

// chain is one dispatch from receipt to intent, with everything that a benchmark needs of it.
type chain struct {
	receipt      []byte // as the orchestrator sent it
	registration *events.Registration
	digest       events.Digest
	input        *events.HookInput
	inputBytes   []byte
	result       *events.HookResult
	resultBytes  []byte
	record       *events.DispatchReceipt
	header       events.Header
	schema       *events.PayloadSchema
}

const chainPayloadSchema = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema",
	"type": "object",
	"additionalProperties": false,
	"required": ["goal_id", "agent_id", "segment_ref", "transition", "observed_at", "source_event_refs"],
	"properties": {
		"goal_id": {"type": "string", "minLength": 1, "maxLength": 256},
		"agent_id": {"type": "string", "minLength": 1, "maxLength": 256},
		"segment_ref": {"type": "string", "pattern": "^segment_[0-9a-f]{24}$"},
		"transition": {"enum": ["segment_completed", "replan_entered"]},
		"observed_at": {"type": "string", "format": "date-time"},
		"source_event_refs": {"type": "array", "maxItems": 64, "items": {"type": "string"}}
	}
}`

func newChain(tb testing.TB) *chain {
	tb.Helper()
	g := readGolden(tb)
	must := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	lines := bytes.Split(readFile(tb, "testdata/golden/longhorizon.jsonl"), []byte("\n"))
	c := &chain{receipt: lines[3]}
	var err error
	c.registration, err = events.Decode[events.Registration](g.Registration)
	must(err)
	c.digest = c.registration.Digest()
	receipt, err := events.Decode[events.Receipt](c.receipt)
	must(err)
	c.input = inputOf(c.registration, c.digest, receipt.Identity(), receipt)
	c.inputBytes, err = events.Encode(c.input)
	must(err)
	payload, err := events.Canonicalize(g.Vectors[3].Payload)
	must(err)
	c.result = &events.HookResult{
		CapabilityID: c.input.CapabilityID, DispatchID: c.input.DispatchID, HookID: c.input.HookID,
		Intents:       []events.Intent{intentOf(c.input, payload)},
		SchemaVersion: events.HookResultSchema, Status: events.ResultProposed,
	}
	c.resultBytes, err = events.Encode(c.result)
	must(err)
	c.record = c.recordOf(receipt, receipt.Identity(), c.result, events.DigestOf(c.inputBytes), events.DigestOf(c.resultBytes))
	c.header = envelopeOf(c.record).Header()
	c.schema, err = events.CompilePayloadSchema("benchmark", []byte(chainPayloadSchema))
	must(err)
	return c
}

func (c *chain) recordOf(
	receipt *events.Receipt, identity events.ReceiptIdentity, result *events.HookResult, input, output events.Digest,
) *events.DispatchReceipt {
	return &events.DispatchReceipt{
		Attempt: 1, CapabilityID: result.CapabilityID, DispatchID: result.DispatchID, EventKind: receipt.EventKind,
		HookID: result.HookID, InputDigest: input, Intents: result.Intents, Invocations: 1, Profile: receipt.Profile,
		ReceiptIdentity: identity, RecordNumber: 1, RecordedAt: "2026-06-23T17:16:01.5Z",
		RegistrationDigest: c.digest, ResultDigest: events.Optional(output),
		SchemaVersion: events.DispatchReceiptSchema, Status: events.StatusProposed,
	}
}

func envelopeOf(r *events.DispatchReceipt) events.Envelope {
	return events.NewEnvelope(r.DispatchID+".1", "afterwrite/dispatcher", events.DispatchReceiptSchema, r.RecordedAt)
}

// run does what a dispatch costs the dispatcher in this package, once.
func (c *chain) run() error {
	_, data, err := events.ReadEvent(c.header, c.receipt)
	if err != nil {
		return err
	}
	receipt, err := events.Decode[events.Receipt](data)
	if err != nil {
		return err
	}
	identity := receipt.Identity()
	input := inputOf(c.registration, c.digest, identity, receipt)
	input.CheckBoundary()
	inputBytes := events.Canonical(input)
	result, canonical, err := events.DecodeCanonical[events.HookResult](c.resultBytes)
	if err != nil {
		return err
	}
	for i := range result.Intents {
		intent := &result.Intents[i]
		intent.CheckBoundary()
		intent.Identity()
		if err := c.schema.Check(intent.Payload); err != nil {
			return err
		}
		events.Canonical(intent)
		events.NewEnvelope(intent.IntentID, "afterwrite/dispatcher", events.IntentSchema, "2026-06-23T17:16:01.5Z").Header()
	}
	record := c.recordOf(receipt, identity, result, events.DigestOf(inputBytes), events.DigestOf(canonical))
	envelopeOf(record).Header()
	events.Canonical(record)
	return nil
}

func BenchmarkDispatch(b *testing.B) {
	c := newChain(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := c.run(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	c := newChain(b)
	record, err := events.Encode(c.record)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("receipt", func(b *testing.B) { benchDecode[events.Receipt](b, c.receipt, events.Decode) })
	b.Run("input", func(b *testing.B) { benchDecode[events.HookInput](b, c.inputBytes, events.Decode) })
	b.Run("result", func(b *testing.B) { benchDecode[events.HookResult](b, c.resultBytes, events.Decode) })
	b.Run("record", func(b *testing.B) { benchDecode[events.DispatchReceipt](b, record, events.Decode) })
}

func benchDecode[T any](b *testing.B, data []byte, decode func([]byte) (*T, error)) {
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decode(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	c := newChain(b)
	b.Run("input", func(b *testing.B) { benchEncode(b, c.input, events.Encode, events.Canonical) })
	b.Run("result", func(b *testing.B) { benchEncode(b, c.result, events.Encode, events.Canonical) })
	b.Run("record", func(b *testing.B) { benchEncode(b, c.record, events.Encode, events.Canonical) })
}

func benchEncode[T any](b *testing.B, doc *T, encode func(*T) ([]byte, error), canonical func(*T) []byte) {
	b.Run("checked", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := encode(doc); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("trusted", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			canonical(doc)
		}
	})
}

func BenchmarkDigest(b *testing.B) {
	c := newChain(b)
	b.SetBytes(int64(len(c.inputBytes)))
	b.ReportAllocs()
	for b.Loop() {
		events.DigestOf(c.inputBytes)
	}
}

func BenchmarkIdentity(b *testing.B) {
	c := newChain(b)
	b.Run("dispatch", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			events.DispatchIdentity(c.record.ReceiptIdentity, c.record.HookID, c.record.CapabilityID, c.digest, c.record.EventKind)
		}
	})
	b.Run("intent", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.result.Intents[0].Identity()
		}
	})
}

func BenchmarkBoundary(b *testing.B) {
	c := newChain(b)
	b.Run("input", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if c.input.CheckBoundary() != "" {
				b.Fatal("not public-safe")
			}
		}
	})
	b.Run("intent", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if c.result.Intents[0].CheckBoundary() != "" {
				b.Fatal("not public-safe")
			}
		}
	})
}

func BenchmarkPayloadSchema(b *testing.B) {
	c := newChain(b)
	for name, text := range map[string]string{
		"by its shape":   chainPayloadSchema,
		"by the library": strings.Replace(chainPayloadSchema, "{", `{"minProperties": 0,`, 1),
	} {
		schema, err := events.CompilePayloadSchema("benchmark", []byte(text))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := schema.Check(c.result.Intents[0].Payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCanonicalize(b *testing.B) {
	c := newChain(b)
	b.SetBytes(int64(len(c.receipt)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := events.Canonicalize(c.receipt); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCloudEvents(b *testing.B) {
	c := newChain(b)
	envelope := envelopeOf(c.record)
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			envelope.Header()
		}
	})
	b.Run("read binary", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := events.ReadEvent(c.header, c.receipt); err != nil {
				b.Fatal(err)
			}
		}
	})
	structured := structuredEvent(envelope, jsontext.Value(c.receipt))
	b.Run("read structured", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := events.ReadEvent(structuredHeader(), structured); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func structuredHeader() events.Header {
	return events.Header{"Content-Type": {"application/cloudevents+json; charset=utf-8"}}
}

func structuredEvent(e events.Envelope, data jsontext.Value) []byte {
	return []byte(`{"specversion":"1.0","id":"` + e.ID + `","source":"` + e.Source + `","type":"` + e.Type +
		`","time":"` + string(e.Time) + `","dataschema":"` + e.DataSchema + `","datacontenttype":"application/json","data":` +
		string(data) + `}`)
}
