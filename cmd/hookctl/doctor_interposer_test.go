package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// interposer stands between a client and a real broker, and has the broker say what it says to others: to those with
// fewer permissions, of older servers, without JetStream.
type interposer struct {
	// told rewrites a line that the broker sends, such as what it tells of itself.
	told func(line string) string
	// asked rewrites the subject of a request, or gives what the broker says in its place.
	asked func(operation, subject string) (as, refusal string)
}

// start gives the address to connect to instead of the broker's.
func (i interposer) start(t *testing.T, broker string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	t.Cleanup(open.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	open.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() { i.relay(client, strings.TrimPrefix(broker, "nats://")) })
		}
	})
	return "nats://" + listener.Addr().String()
}

// relay ends when either side does.
func (i interposer) relay(client net.Conn, broker string) {
	defer client.Close()
	server, err := net.Dial("tcp", broker)
	if err != nil {
		return
	}
	defer server.Close()
	var writing sync.Mutex
	say := func(to io.Writer, text string) error {
		writing.Lock()
		defer writing.Unlock()
		_, err := io.WriteString(to, text)
		return err
	}
	var both sync.WaitGroup
	both.Go(func() {
		defer client.Close()
		for from := bufio.NewReader(server); ; {
			line, payload, err := operation(from)
			if err != nil {
				return
			}
			if i.told != nil {
				line = i.told(line)
			}
			if say(client, line+payload) != nil {
				return
			}
		}
	})
	both.Go(func() {
		defer server.Close()
		for from := bufio.NewReader(client); ; {
			line, payload, err := operation(from)
			if err != nil {
				return
			}
			to := server
			if words := strings.Fields(line); i.asked != nil && len(words) > 1 {
				as, refusal := i.asked(words[0], words[1])
				line = strings.Replace(line, words[1], as, 1)
				if refusal != "" {
					to, line, payload = client, "-ERR '"+refusal+"'\r\n", ""
				}
			}
			if say(to, line+payload) != nil {
				return
			}
		}
	})
	both.Wait()
}

// operation reads one of the protocol, with its payload if it has one.
func operation(from *bufio.Reader) (line, payload string, err error) {
	line, err = from.ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) == 0 || !slices.Contains([]string{"PUB", "HPUB", "MSG", "HMSG"}, words[0]) {
		return line, "", err
	}
	size, err := strconv.Atoi(words[len(words)-1])
	if err != nil {
		return "", "", err
	}
	data := make([]byte, size+len("\r\n"))
	_, err = io.ReadFull(from, data)
	return line, string(data), err
}

// forbidding is a broker that forbids some subjects to the client.
func forbidding(subjects ...string) interposer {
	return interposer{asked: func(operation, subject string) (as, refusal string) {
		verb := "Publish"
		if operation == "SUB" {
			verb = "Subscription"
		}
		if slices.Contains(subjects, subject) {
			refusal = fmt.Sprintf("Permissions Violation for %s to %q", verb, subject)
		}
		return subject, refusal
	}}
}
