package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors"
	"github.com/afterwrite/afterwrite/internal/natsconn"
	"github.com/afterwrite/afterwrite/streams"
)

// settings reads what the flags name. Without files nobody has said what is installed, and that is no finding.
func (e *examination) settings(context.Context) (note string, found []finding, err error) {
	t := e.command.Topology
	bad := func(about, what string) {
		found = append(found, finding{
			About: events.Optional(about), What: what,
			Why:    "A dispatcher with these settings does not start, or leaves the hook out.",
			Remedy: "Correct it, and try again; hookctl hooks check says what the files would install.",
		})
	}
	switch missing := t.Installed.Missing(); len(missing) {
	case 2:
		return "what is installed was not told: give --hooks and --profiles, and --grants", nil, nil
	case 1:
		bad(missing[0], missing[0]+" must be given too.")
		return "", found, nil
	}
	files, err := readInstalled(t.Installed)
	if err != nil {
		bad("", sentence(err.Error()))
		return "", found, nil
	}
	report := registry.Check(files)
	for _, h := range report.Hooks {
		for _, problem := range h.Problems {
			bad(h.HookID, sentence("Rejected: "+problem))
		}
	}
	for _, problem := range report.Problems {
		bad("", sentence("Nothing would start: "+problem))
	}
	for _, name := range t.Grants {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // the topology says so below
		}
		if file, err := executors.ParseGrants(data); err == nil {
			for _, grant := range file.Grants {
				if grant.Service != "" {
					e.services = append(e.services, grant.Service)
				}
			}
		}
	}
	if len(report.Problems) > 0 {
		return "", found, nil
	}
	told, err := t.build()
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			bad("", sentence(line))
		}
		return "", found, nil
	}
	e.told = &told
	return counted(len(report.Hooks), "hook", "hooks") + ", " + counted(len(report.Profiles), "profile", "profiles"), found, nil
}

// sentence ends a text as sentences end.
func sentence(text string) string {
	text = strings.TrimRight(text, ". \n")
	return text + "."
}

// leastMajor and leastMinor are the first version of the server that schedules messages.
const leastMajor, leastMinor = 2, 12

// broker connects, and asks whether the server can do what is needed.
func (e *examination) broker(ctx context.Context) (note string, found []finding, err error) {
	e.nc, err = natsconn.Connect(natsconn.Options{Flags: e.command.Topology.Broker.NATS, Name: "hookctl"})
	if err != nil {
		return "", []finding{{
			What:   sentence(err.Error()),
			Why:    "Nothing works without the broker: receipts cannot be published, and nothing is dispatched.",
			Remedy: connectRemedy(err),
		}}, nil
	}
	if e.js, err = jetstream.New(e.nc); err != nil {
		return "", nil, fmt.Errorf("open JetStream: %w", err)
	}
	version := e.nc.ConnectedServerVersion()
	note = "server " + version
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil ||
		major < leastMajor || major == leastMajor && minor < leastMinor {
		found = append(found, finding{
			About:  events.Optional(version),
			What:   fmt.Sprintf("The server is %s; it must be at least %d.%d.0.", version, leastMajor, leastMinor),
			Why:    "An older server does not schedule messages, so that no dispatch is ever retried.",
			Remedy: "Upgrade the server, one replica after the other.",
		})
	}
	err = e.try(ctx, func(ctx context.Context) error {
		_, err := e.js.AccountInfo(ctx)
		return err
	})
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		found = append(found, finding{
			What:   "JetStream is not enabled, for the server or for this account.",
			Why:    "Receipts, the journal, wake-ups, intents and executions are streams.",
			Remedy: "Enable JetStream in the server's configuration and for the account, or use the account that has it.",
		})
		e.nc.Close()
		e.nc, e.js = nil, nil
		return note, found, nil
	}
	if err != nil && !errors.Is(err, nats.ErrPermissionViolation) {
		return note, found, fmt.Errorf("look at the account: %w", err)
	}
	return note, found, nil
}

// connectRemedy is what to do about a connection that did not come about, by its cause.
func connectRemedy(err error) string {
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return "Give credentials that the broker accepts, with --nats-creds, --nats-nkey or --nats-cert."
	case errors.As(err, &unknown):
		return "Give the CA of the broker's certificate with --nats-ca."
	case errors.Is(err, nats.ErrNoServers):
		return "Start the broker, or correct --nats-url; look for a network policy in between."
	}
	return "Correct the broker's flags."
}

// try does what may not be permitted. The error is then a permission violation.
func (e *examination) try(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The broker does not answer a request that it forbids, but says so beside.
	e.nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			cancel(err)
		}
	})
	defer e.nc.SetErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
	err := do(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, nats.ErrPermissionViolation) {
		return cause
	}
	return err
}

// violation is how the broker tells of what it forbids.
var violation = regexp.MustCompile(`Violation for (\w+) to "([^"]+)"`)

// permissions tries what hookctl does and what changes nothing, and keeps what it learns by it.
func (e *examination) permissions(ctx context.Context) (note string, found []finding, err error) {
	if e.js == nil {
		return "", nil, notAsked("there is no broker to ask")
	}
	tried := 0
	attempt := func(what string, do func(context.Context) error) error {
		tried++
		err := e.try(ctx, do)
		if !errors.Is(err, nats.ErrPermissionViolation) {
			return err
		}
		verb, subject := "use", "the subject"
		if m := violation.FindStringSubmatch(err.Error()); m != nil {
			verb, subject = "publish to", m[2]
			if m[1] == "Subscription" {
				verb = "subscribe to"
			}
		}
		found = append(found, finding{
			About: events.Optional(subject),
			What:  fmt.Sprintf("These credentials may not %s %s, which it takes to %s.", verb, subject, what),
			Why:   "The broker does not answer what it forbids: a command that needs it waits until its --timeout.",
			Remedy: fmt.Sprintf("Permit the broker's user to %s %s, or use an operator's credentials. "+
				"Until then, some of the checks below cannot be made.", verb, subject),
		})
		return nil
	}
	if err := attempt("look at the account", func(ctx context.Context) error {
		_, err := e.js.AccountInfo(ctx)
		return err
	}); err != nil {
		return "", found, fmt.Errorf("look at the account: %w", err)
	}
	for _, s := range streams.Default(streams.Settings{}).Streams {
		if err := e.learn(s.Config.Name, attempt); err != nil {
			return "", found, err
		}
	}
	if err := attempt("ask who answers for hooks and services", func(ctx context.Context) error {
		serving, err := askServices(ctx, e.nc, e.wanted()...)
		if err == nil {
			e.serving = serving
		}
		return err
	}); err != nil {
		return "", found, err
	}
	if err := attempt("have dispatches redriven", func(ctx context.Context) error {
		// A request that names nothing is refused, and changes nothing.
		_, err := e.nc.RequestWithContext(ctx, dispatcherSubject(), []byte("{}"))
		return err
	}); err != nil && !errors.Is(err, nats.ErrNoResponders) {
		return "", found, fmt.Errorf("ask a dispatcher: %w", err)
	}
	return fmt.Sprintf("%d harmless requests tried", tried), found, nil
}

// learn looks at a stream in each way that hookctl does. One that is missing is a matter of the topology.
func (e *examination) learn(name string, attempt func(what string, do func(context.Context) error) error) error {
	var stream jetstream.Stream
	err := attempt("look at "+name, func(ctx context.Context) (err error) {
		stream, err = e.js.Stream(ctx, name)
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) || err == nil && stream == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w", name, err)
	}
	e.streams[name] = stream.CachedInfo()
	if err := attempt("list the consumers of "+name, func(ctx context.Context) error {
		list := stream.ListConsumers(ctx)
		for info := range list.Info() {
			e.consumers[name] = append(e.consumers[name], info)
		}
		return list.Err()
	}); err != nil {
		return fmt.Errorf("list the consumers of %s: %w", name, err)
	}
	if err := attempt("read a message of "+name, func(ctx context.Context) error {
		_, err := stream.GetMsg(ctx, 1)
		return err
	}); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("read a message of %s: %w", name, err)
	}
	if name != streams.Journal {
		return nil
	}
	var reader jetstream.Consumer
	if err := attempt("read the journal", func(ctx context.Context) (err error) {
		reader, err = e.js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
		return err
	}); err != nil || reader == nil {
		return err
	}
	return attempt("stop reading the journal", func(ctx context.Context) error {
		return e.js.DeleteConsumer(ctx, name, reader.CachedInfo().Name)
	})
}

// hooks are those that are installed: as told, or as the consumers of wake-ups say.
func (e *examination) hooks() []events.HookID {
	found := map[events.HookID]bool{}
	if e.told != nil {
		retries, _ := e.told.Stream(streams.Retries)
		for _, c := range retries.Consumers {
			hook, ok := streams.ParseRetryConsumer(c.Durable)
			found[hook] = ok
		}
	} else {
		for _, c := range e.consumers[streams.Retries] {
			if hook, ok := streams.ParseRetryConsumer(c.Config.Durable); ok {
				found[hook] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// wanted are the subjects on which somebody is to answer.
func (e *examination) wanted() []string {
	subjects := []string{dispatcherSubject()}
	for _, hook := range e.hooks() {
		subjects = append(subjects, streams.CallSubject(hook))
	}
	for _, service := range e.services {
		subjects = append(subjects, streams.ServiceSubject(service))
	}
	return subjects
}
