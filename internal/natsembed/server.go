package natsembed

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/zap"
)

const (
	// startTimeout bounds how long a server may take until it accepts clients, the recovery of its store included.
	startTimeout = 30 * time.Second
	startStep    = 100 * time.Millisecond
)

// Options configure an embedded server.
type Options struct {
	// StoreDir is where the streams are kept. Required: the server's own default is one folder for everybody.
	StoreDir string
	// Host to listen on. By default the loopback address.
	Host string
	// Port to listen on. By default a random free one.
	Port int
	// MaxStoreBytes bounds what file streams may reserve. By default three quarters of the free disk.
	MaxStoreBytes int64
	// MaxMemoryBytes bounds what memory streams may reserve. By default three quarters of the machine's memory.
	MaxMemoryBytes int64
	// SyncAlways syncs every write to the disk before it is acknowledged, so that an acknowledged write also outlives
	// the machine and not only the process.
	SyncAlways bool
	// Logger takes the server's log. By default it is dropped.
	Logger *zap.Logger
}

// Server is a running embedded server.
type Server struct {
	server *server.Server
	lock   *os.File // of the store; nil where there is none
}

// Start runs a server until [Server.Shutdown]. When it returns, the server accepts clients and JetStream requests.
func Start(opts Options) (*Server, error) {
	if opts.StoreDir == "" {
		return nil, errors.New("natsembed: StoreDir must name a directory")
	}
	return start(opts.serverOptions(), opts.Logger)
}

func (o Options) serverOptions() *server.Options {
	so := &server.Options{
		Host:                   o.Host,
		Port:                   o.Port,
		JetStream:              true,
		JetStreamMaxStore:      o.MaxStoreBytes,
		JetStreamMaxMemory:     o.MaxMemoryBytes,
		StoreDir:               o.StoreDir,
		SyncAlways:             o.SyncAlways,
		NoSigs:                 true, // signals are the embedding process's business
		DisableJetStreamBanner: true,
	}
	if so.Host == "" {
		so.Host = "127.0.0.1"
	}
	if so.Port == 0 {
		so.Port = server.RANDOM_PORT
	}
	// To the server, 0 is no storage at all and -1 is to look at the machine.
	if so.JetStreamMaxStore == 0 {
		so.JetStreamMaxStore = -1
	}
	if so.JetStreamMaxMemory == 0 {
		so.JetStreamMaxMemory = -1
	}
	return so
}

func start(so *server.Options, log *zap.Logger) (*Server, error) {
	held, err := lock(so.StoreDir)
	if err != nil {
		return nil, err
	}
	s, err := server.NewServer(so)
	if err != nil {
		_ = held.Close() // nothing was written to it
		return nil, fmt.Errorf("natsembed: %w", err)
	}
	logger := newLogger(log)
	s.SetLoggerV2(logger, log != nil && log.Core().Enabled(zap.DebugLevel), false, false)
	s.Start()
	// In short steps, because a server that has given up is not told from one that is busy by waiting.
	for deadline := time.Now().Add(startTimeout); logger.fatal() == "" && time.Now().Before(deadline); {
		if s.ReadyForConnections(startStep) {
			return &Server{server: s, lock: held}, nil
		}
	}
	s.Shutdown()
	s.WaitForShutdown()
	_ = held.Close() // nothing was written to it
	if cause := logger.fatal(); cause != "" {
		return nil, fmt.Errorf("natsembed: the server did not start: %s", cause)
	}
	return nil, fmt.Errorf("natsembed: the server was not ready within %s", startTimeout)
}

// ClientURL is where clients connect.
func (s *Server) ClientURL() string { return s.server.ClientURL() }

// Shutdown stops the server and returns when its store is flushed and its goroutines are gone.
// Calling it again does nothing.
func (s *Server) Shutdown() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
	_ = s.lock.Close() // nothing was written to it; closed or absent already is as good
}
