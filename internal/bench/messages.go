package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
	"github.com/afterwrite/afterwrite/streams"
)

// kind is the event kind of every receipt.
const kind = events.ReplanRecorded

// opaqueBytes is the size of every message that nobody looks into.
const opaqueBytes = 900

// A mark names a receipt by its number, and stands in its intent too, whichever variant made that.
const (
	markPrefix = "bench_"
	markDigits = 9
)

func mark(i int) string { return fmt.Sprintf("%s%0*d", markPrefix, markDigits, i) }

// marked reads the mark in a message's data.
func marked(data []byte) (i int, ok bool) {
	at := bytes.Index(data, []byte(markPrefix))
	if at < 0 || len(data) < at+len(markPrefix)+markDigits {
		return 0, false
	}
	i, err := strconv.Atoi(string(data[at+len(markPrefix):][:markDigits]))
	return i, err == nil
}

// document is the i-th receipt as an orchestrator writes it, committed now.
func document(i int) *nats.Msg {
	turn := "turn_" + strconv.Itoa(i)
	todo := "todo_" + strconv.Itoa(i)
	effect := "public-long-horizon-loop:codex-product-capability:" + todo + ":" + turn
	r := &events.Receipt{
		EventKind: kind,
		Plan: events.Settlement{
			AgentID: "codex-product-capability", EffectID: effect, GoalID: "public-long-horizon-loop",
			TodoID: todo, TurnInstanceID: turn,
		},
		Profile: profile,
		Projection: events.Projection{
			FactRefs: []string{mark(i), "fact_b"}, SchemaVersion: events.ProjectionSchema, Transition: events.ReplanEntered,
		},
		Receipt: events.WritebackReceipt{
			Checkpointed: true, CommittedAt: events.NewTimestamp(time.Now()), EffectID: effect,
			ReceiptID: "receipt_" + strconv.Itoa(i), StateRevision: "rev_" + strconv.Itoa(i),
			Status: events.Committed, StepKind: events.DurableWriteback,
		},
		SchemaVersion: events.ReceiptSchema,
	}
	data := events.Canonical(r)
	header := events.NewEnvelope(r.Receipt.ReceiptID, "orchestrator", events.ReceiptSchema, r.Receipt.CommittedAt).Header()
	header[streams.HeaderMessageID] = []string{events.SHA256(data)}
	return &nats.Msg{Subject: streams.ReceiptSubject(kind), Header: header, Data: data}
}

// opaque is the i-th receipt for those who look into nothing. Its id is in two headers: JetStream's and Watermill's.
func opaque(i int) *nats.Msg {
	id := hash(strconv.Itoa(i))
	return &nats.Msg{
		Subject: streams.ReceiptSubject(kind),
		Header:  nats.Header{streams.HeaderMessageID: {id}, watermillID: {id}},
		Data:    opaqueBody(i),
	}
}

func opaqueBody(i int) []byte {
	body := bytes.Repeat([]byte("abcdefghijklmnopqrstuvwxyz"), opaqueBytes/26+1)[:opaqueBytes]
	copy(body, mark(i))
	return body
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// dispatchID has the shape of ours, for those who have only a number to make it of.
func dispatchID(sequence uint64, hook int) events.DispatchID {
	return "pwh_sha256_" + hash(strconv.FormatUint(sequence, 10)+" "+strconv.Itoa(hook))
}

// intentSubject has the shape of ours, for the one intent of a dispatch.
func intentSubject(dispatch events.DispatchID) string {
	return streams.IntentSubject("pwi_sha256_"+dispatch[len("pwh_sha256_"):], periodicreport.IntentKind)
}

// expectNone is the header by which a message is the first on its subject, or is refused.
var expectNone = nats.Header{streams.HeaderExpectedSequence: {"0"}}
