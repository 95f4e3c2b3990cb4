package natsembed

import (
	"io"
	"net"
	"sync"
)

// link carries the route connections that one node dials to another. Nodes reach each other through links only, so
// cutting a node's links isolates it while both sides of the cut go on running.
type link struct {
	listener net.Listener
	// known is closed once target is the address to carry to, or "" if there will be none.
	known  chan struct{}
	once   sync.Once
	target string

	wg    sync.WaitGroup
	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
}

func newLink() (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{listener: listener, known: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	l.wg.Go(l.accept)
	return l, nil
}

func (l *link) address() string { return l.listener.Addr().String() }

func (l *link) leadTo(target string) {
	l.once.Do(func() {
		l.target = target
		close(l.known)
	})
}

// setCut drops all connections and takes no new ones, or takes them again.
func (l *link) setCut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	if cut {
		for conn := range l.conns {
			conn.Close()
		}
	}
}

func (l *link) close() {
	l.listener.Close()
	l.leadTo("")
	l.setCut(true)
	l.wg.Wait()
}

func (l *link) accept() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() { l.carry(from) })
	}
}

func (l *link) carry(from net.Conn) {
	defer from.Close()
	<-l.known
	if l.target == "" {
		return
	}
	to, err := net.Dial("tcp", l.target)
	if err != nil {
		return
	}
	defer to.Close()
	if !l.hold(from, to) {
		return
	}
	defer l.release(from, to)
	// Either way of the connection ends with the other; how it ended is the servers' business.
	l.wg.Go(func() {
		_, _ = io.Copy(to, from)
		to.Close()
	})
	_, _ = io.Copy(from, to)
}

func (l *link) hold(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return false
	}
	for _, conn := range conns {
		l.conns[conn] = struct{}{}
	}
	return true
}

func (l *link) release(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range conns {
		delete(l.conns, conn)
	}
}

func (l *link) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}
