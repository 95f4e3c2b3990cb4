package natsembed

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// settleTimeout bounds how long an election, or the catching up of a node, may take. The server's election
	// timeout is up to 9 s.
	settleTimeout = 60 * time.Second
	settlePoll    = 10 * time.Millisecond
)

// Cluster is a JetStream cluster of several nodes for one test.
type Cluster struct {
	tb    TB
	nodes []*Node
}

// Node is one server of a [Cluster].
type Node struct {
	cluster *Cluster
	name    string
	options *server.Options
	server  *Server // the last one that ran
	running bool
	// in holds a link for every other node that dials this one, out the links that this one dials.
	in, out []*link
}

// StartCluster runs a cluster of n nodes on random loopback ports, each with a folder of its own, for one test.
// It returns when the cluster has a leader that knows all nodes, and stops everything at the end of the test.
func StartCluster(tb TB, n int) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	for i := range n {
		c.nodes = append(c.nodes, &Node{cluster: c, name: fmt.Sprintf("node-%d", i+1)})
	}
	tb.Cleanup(c.stop)
	for _, node := range c.nodes {
		if err := c.connect(node); err != nil {
			tb.Fatalf("natsembed: %v", err)
		}
	}
	for _, node := range c.nodes {
		storeDir, err := os.MkdirTemp("", "natsembed-")
		if err != nil {
			tb.Fatalf("natsembed: %v", err)
		}
		node.options = c.options(node, storeDir)
		node.Start()
		route := node.server.server.ClusterAddr()
		// A node that is started again must be found where it was.
		node.options.Port = node.server.server.Addr().(*net.TCPAddr).Port
		node.options.Cluster.Port = route.Port
		for _, l := range node.in {
			l.leadTo(route.String())
		}
	}
	c.await("a leader that knows all nodes", func() bool {
		leader := c.metaLeader()
		return leader != nil && len(leader.server.server.JetStreamClusterPeers()) == n
	})
	return c
}

func (c *Cluster) connect(node *Node) error {
	for _, other := range c.nodes {
		if other == node {
			continue
		}
		l, err := newLink()
		if err != nil {
			return err
		}
		node.out = append(node.out, l)
		other.in = append(other.in, l)
	}
	return nil
}

func (c *Cluster) options(node *Node, storeDir string) *server.Options {
	so := testOptions(storeDir).serverOptions()
	so.ServerName = node.name
	so.Cluster = server.ClusterOpts{
		Name: "afterwrite-test",
		Host: "127.0.0.1",
		Port: server.RANDOM_PORT,
		// Nodes tell each other about third ones; with an address that leads nowhere, only links do.
		Advertise:   "127.0.0.1:1",
		NoAdvertise: true,
		// One connection a link is enough here.
		PoolSize: -1,
	}
	for _, l := range node.out {
		so.Routes = append(so.Routes, &url.URL{Scheme: "nats-route", Host: l.address()})
	}
	return so
}

// ClientURL lists where clients connect to any node.
func (c *Cluster) ClientURL() string {
	urls := make([]string, len(c.nodes))
	for i, node := range c.nodes {
		urls[i] = node.ClientURL()
	}
	return strings.Join(urls, ",")
}

// Nodes are all nodes, running or not.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// StreamLeader waits until a running node leads the stream, as that node sees it, and returns it. During a partition
// the node that led before may believe for a while that it still does; a reachable one is preferred.
func (c *Cluster) StreamLeader(stream string) *Node {
	c.tb.Helper()
	var leader *Node
	c.await("a leader of the stream "+stream, func() bool {
		leader = nil
		for _, node := range c.nodes {
			if node.running && node.server.server.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream) {
				if leader == nil || leader.isolated() {
					leader = node
				}
			}
		}
		return leader != nil
	})
	return leader
}

// AwaitCurrent waits until every running node that holds a replica of the stream has caught up with its leader.
func (c *Cluster) AwaitCurrent(stream string) {
	c.tb.Helper()
	c.await("all replicas of the stream "+stream, func() bool {
		for _, node := range c.nodes {
			if node.running && !node.server.server.JetStreamIsStreamCurrent(server.DEFAULT_GLOBAL_ACCOUNT, stream) {
				return false
			}
		}
		return true
	})
}

func (c *Cluster) metaLeader() *Node {
	for _, node := range c.nodes {
		if node.running && node.server.server.JetStreamIsLeader() {
			return node
		}
	}
	return nil
}

// await polls, because the server has no signal for what a cluster agrees on.
func (c *Cluster) await(what string, reached func() bool) {
	c.tb.Helper()
	tick := time.NewTicker(settlePoll)
	defer tick.Stop()
	timeout := time.After(settleTimeout)
	for !reached() {
		select {
		case <-tick.C:
		case <-timeout:
			c.tb.Fatalf("natsembed: waited %s for %s", settleTimeout, what)
			return
		}
	}
}

func (c *Cluster) stop() {
	for _, node := range c.nodes {
		node.Stop()
	}
	for _, node := range c.nodes {
		for _, l := range node.out {
			l.close()
		}
	}
	// Not the test's own folder, because a node that has shut down may write a last snapshot, over which the removal
	// of that folder would fail.
	for _, node := range c.nodes {
		if node.options != nil {
			c.await("the store of "+node.name+" to be removed", func() bool {
				return os.RemoveAll(node.options.StoreDir) == nil
			})
		}
	}
}

// Name is the node's name as the cluster knows it.
func (n *Node) Name() string { return n.name }

// ClientURL is where clients connect to this node. It stays the same when the node is started again.
func (n *Node) ClientURL() string { return n.server.ClientURL() }

// Stop shuts the node down and keeps its store.
func (n *Node) Stop() {
	if n.running {
		n.running = false
		n.server.Shutdown()
	}
}

// Start runs a node that is stopped, where it was and with the store it had.
func (n *Node) Start() {
	n.cluster.tb.Helper()
	if n.running {
		return
	}
	s, err := start(n.options.Clone(), nil)
	if err != nil {
		n.cluster.tb.Fatalf("%v", err)
		return
	}
	n.server, n.running = s, true
}

// Isolate cuts the node off from the other nodes. Its clients stay connected to it.
func (n *Node) Isolate() { n.setCut(true) }

// Rejoin undoes [Node.Isolate]. The nodes find each other again within some seconds.
func (n *Node) Rejoin() { n.setCut(false) }

func (n *Node) setCut(cut bool) {
	for _, l := range n.in {
		l.setCut(cut)
	}
	for _, l := range n.out {
		l.setCut(cut)
	}
}

func (n *Node) isolated() bool {
	for _, l := range n.out {
		if !l.isCut() {
			return false
		}
	}
	return len(n.out) > 0
}
