// Package natsconn connects a process to the broker: one set of flags, one policy, one place where anything dials.
package natsconn

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Flags say where the broker is and who we are. They are embedded in each binary's flags.
type Flags struct {
	URL   string `name:"nats-url" env:"AFTERWRITE_NATS_URL" default:"nats://127.0.0.1:4222" help:"Broker addresses, separated by commas."`
	Creds string `name:"nats-creds" env:"AFTERWRITE_NATS_CREDS" type:"path" placeholder:"FILE" help:"Credentials file (JWT and seed)."`
	NKey  string `name:"nats-nkey" env:"AFTERWRITE_NATS_NKEY" type:"path" placeholder:"FILE" help:"NKey seed file."`
	CA    string `name:"nats-ca" env:"AFTERWRITE_NATS_CA" type:"path" placeholder:"FILE" help:"CA certificates that the broker's certificate must descend from."`
	Cert  string `name:"nats-cert" env:"AFTERWRITE_NATS_CERT" type:"path" placeholder:"FILE" help:"Client certificate; needs --nats-key."`
	Key   string `name:"nats-key" env:"AFTERWRITE_NATS_KEY" type:"path" placeholder:"FILE" help:"Key of the client certificate."`
}

// Options of a connection.
type Options struct {
	Flags
	// Name is shown by the broker's monitoring.
	Name string
	// InboxPrefix is where this connection's replies go, empty for the client's own.
	InboxPrefix string
	// Dialer makes every connection of the process, nil for the net package's own. A test records what it dials.
	Dialer nats.CustomDialer
	Logger *zap.Logger
	// Metrics is where the connection's metrics are registered, nil for nowhere.
	Metrics prometheus.Registerer
	// Reconnected is called, from the client's goroutine, whenever the connection is there again.
	Reconnected func()
}

// Validate checks across the flags. It is not a method of [Flags], for a parser of flags would call it there and report
// nothing else that is wrong.
func (o Options) Validate() error {
	var problems []error
	if (o.Cert == "") != (o.Key == "") {
		problems = append(problems, errors.New("--nats-cert and --nats-key go together"))
	}
	if o.Creds != "" && o.NKey != "" {
		problems = append(problems, errors.New("--nats-creds and --nats-nkey exclude each other"))
	}
	return errors.Join(problems...)
}

// Connect connects, and from then on reconnects for ever. The first connection must succeed.
func Connect(o Options) (*nats.Conn, error) {
	log := o.Logger
	if log == nil {
		log = zap.NewNop()
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	options := []nats.Option{
		nats.Name(o.Name),
		nats.MaxReconnects(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("broker connection lost", zap.Error(err))
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("broker connection restored", zap.String("url", nc.ConnectedUrlRedacted()))
			if o.Reconnected != nil {
				o.Reconnected()
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			fields := []zap.Field{zap.Error(err)}
			if sub != nil {
				fields = append(fields, zap.String("subject", sub.Subject))
			}
			log.Error("broker reported an error", fields...)
		}),
	}
	if o.InboxPrefix != "" {
		options = append(options, nats.CustomInboxPrefix(o.InboxPrefix))
	}
	if o.Dialer != nil {
		options = append(options, nats.SetCustomDialer(o.Dialer))
	}
	if o.Creds != "" {
		options = append(options, nats.UserCredentials(o.Creds))
	}
	if o.NKey != "" {
		nkey, err := nats.NkeyOptionFromSeed(o.NKey)
		if err != nil {
			return nil, fmt.Errorf("read --nats-nkey: %w", err)
		}
		options = append(options, nkey)
	}
	if o.CA != "" {
		options = append(options, nats.RootCAs(o.CA))
	}
	if o.Cert != "" {
		options = append(options, nats.ClientCert(o.Cert, o.Key))
	}
	nc, err := nats.Connect(o.URL, options...)
	if err != nil {
		if parsing := (*url.Error)(nil); errors.As(err, &parsing) {
			err = parsing.Err // what wraps it repeats the address, its password included
		}
		return nil, fmt.Errorf("connect to the broker at %s: %w", redacted(o.URL), err)
	}
	if err := observe(nc, o.Metrics); err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// redacted is the addresses without the users, passwords and tokens that may stand in them.
func redacted(addresses string) string {
	list := strings.Split(addresses, ",")
	for i, address := range list {
		if at := strings.LastIndexByte(address, '@'); at >= 0 {
			scheme, _, _ := strings.Cut(address[:at], "://")
			if len(scheme) == at {
				scheme = "nats" // as the client takes it
			}
			list[i] = scheme + "://xxxxx" + address[at:]
		}
	}
	return strings.Join(list, ",")
}
