package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// limitDispatches are under way at once.
const limitDispatches = 2048

// limit is one loop over one subscription, to which the receipts, the replies and the acknowledgements all come.
// It publishes and goes on: there is no future, goroutine or context for a message.
type limit struct {
	client
	hooks    int
	inbox    string
	messages chan *nats.Msg
	// places hold the dispatches under way; a reply's subject names the place.
	places []place
	// subjects are where the answers to each place are to be sent.
	subjects []string
	free     []int
	pulled   int // receipts asked for and not yet come
}

type place struct {
	receipt *limitReceipt
	hook    int
	id      events.DispatchID
	step    step
}

type limitReceipt struct {
	reply string
	open  int
}

// step is what a place awaits.
type step int

const (
	awaitsReply step = iota
	awaitsRecord
	awaitsIntent
)

func serveLimit(_ context.Context, j job) (*served, error) {
	c, err := dial(j.URL, "limit")
	if err != nil {
		return nil, err
	}
	l := &limit{
		client: c, hooks: j.Hooks, inbox: c.nc.NewInbox() + ".",
		messages: make(chan *nats.Msg, 1<<16),
		places:   make([]place, limitDispatches),
	}
	for i := range l.places {
		l.subjects = append(l.subjects, l.inbox+strconv.Itoa(i))
		l.free = append(l.free, i)
	}
	sub, err := c.nc.ChanSubscribe(l.inbox+"*", l.messages)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := l.run(); err != nil {
			crash(fmt.Errorf("limit: %w", err))
		}
	}()
	return &served{stop: func() error {
		if err := sub.Unsubscribe(); err != nil {
			return fmt.Errorf("unsubscribe: %w", err)
		}
		close(l.messages)
		<-ended
		c.nc.Close()
		return nil
	}}, nil
}

func (l *limit) run() error {
	if err := l.pull(); err != nil {
		return err
	}
	for m := range l.messages {
		var err error
		if rest, ours := strings.CutPrefix(m.Subject, l.inbox); ours {
			err = l.answered(rest, m)
		} else {
			err = l.start(m)
		}
		if err == nil {
			err = l.pull()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pull asks for what can be started, once that is worth a message.
func (l *limit) pull() error {
	room := len(l.free)/l.hooks - l.pulled
	if room < len(l.places)/l.hooks/4 {
		return nil
	}
	l.pulled += room
	return l.nc.PublishMsg(&nats.Msg{
		Subject: streams.MsgNextSubject(streams.Receipts, streams.DispatcherConsumer),
		Reply:   l.inbox + "pull",
		Data:    []byte(`{"batch":` + strconv.Itoa(room) + `}`),
	})
}

// start begins the dispatches of a receipt.
func (l *limit) start(m *nats.Msg) error {
	l.pulled--
	meta, err := m.Metadata()
	if err != nil {
		return fmt.Errorf("read a delivery: %w", err)
	}
	receipt := &limitReceipt{reply: m.Reply, open: l.hooks}
	for hook := range l.hooks {
		at := l.free[len(l.free)-1]
		l.free = l.free[:len(l.free)-1]
		l.places[at] = place{receipt: receipt, hook: hook, id: dispatchID(meta.Sequence.Stream, hook)}
		call := &nats.Msg{Subject: streams.CallSubject(hookID(hook)), Reply: l.subjects[at], Data: m.Data}
		if err := l.nc.PublishMsg(call); err != nil {
			return fmt.Errorf("call: %w", err)
		}
	}
	return nil
}

var (
	errRefused = errors.New("the broker refused")
	acked      = []byte("+ACK")
)

// answered takes what the place awaits one step further.
func (l *limit) answered(name string, m *nats.Msg) error {
	at, err := strconv.Atoi(name)
	if err != nil {
		return nil //nolint:nilerr // the state of a pull, which has nothing to say while there are receipts
	}
	p := &l.places[at]
	switch p.step {
	case awaitsReply:
		p.step = awaitsRecord
		return l.create(streams.JournalSubject(p.id, hookID(p.hook)), l.subjects[at], m.Data)
	case awaitsRecord:
		if bytes.Contains(m.Data, []byte(`"error"`)) {
			return fmt.Errorf("%w: %s", errRefused, m.Data)
		}
		p.step = awaitsIntent
		return l.create(intentSubject(p.id), l.subjects[at], limitIntent)
	case awaitsIntent:
		receipt := p.receipt
		*p = place{}
		l.free = append(l.free, at)
		if receipt.open--; receipt.open == 0 {
			return l.nc.PublishMsg(&nats.Msg{Subject: receipt.reply, Data: acked})
		}
	}
	return nil
}

var limitIntent = opaqueBody(0)

func (l *limit) create(subject, reply string, data []byte) error {
	return l.nc.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Header: expectNone, Data: data})
}
