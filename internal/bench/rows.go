package main

import (
	"fmt"
	"slices"

	"github.com/afterwrite/afterwrite/streams"
)

// group is a part of the table.
type group string

const (
	// groupThroughput: dispatches a second at saturation, by hooks and replicas.
	groupThroughput group = "throughput"
	// groupPeers: other software that does the same job.
	groupPeers group = "peers"
	// groupStorage: streams in memory, and streams that are synced on every write.
	groupStorage group = "storage"
	// groupSize: after many dispatches are journaled.
	groupSize group = "size"
	// groupLatency: from a receipt's acknowledgement to its intent.
	groupLatency group = "latency"
	// groupWork: what the dispatcher does itself, without a broker.
	groupWork group = "work"
)

var groups = []group{groupThroughput, groupPeers, groupStorage, groupSize, groupLatency, groupWork}

func groupNames() []string {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = string(g)
	}
	return names
}

// row is one variant under one setting.
type row struct {
	Group      group           `json:"group"`
	Role       role            `json:"variant"`
	Hooks      int             `json:"hooks"`
	Replicas   int             `json:"replicas"`
	Storage    streams.Storage `json:"storage"`
	SyncAlways bool            `json:"sync_always"`
	// Journaled is how many dispatches the journal holds before the measurement.
	Journaled int `json:"journaled"`
	// times and share are how many times, or which part, of the dispatches are done: what is slow would take all day,
	// and with many hooks there is so much under way that a measurement must be longer.
	times, share int
}

// rows are what is measured at saturation, in the order in which each run goes through them.
func rows(journaled []int) []row {
	all := []row{}
	add := func(r row) {
		r.Replicas, r.Hooks = max(r.Replicas, 1), max(r.Hooks, 1)
		r.times, r.share = max(r.Hooks/8, 1), max(r.share, 1)
		if r.Storage == "" {
			r.Storage = streams.FileStorage
		}
		all = append(all, r)
	}
	for _, hooks := range []int{1, 4, 16} {
		add(row{Group: groupThroughput, Role: roleLimit, Hooks: hooks})
		add(row{Group: groupThroughput, Role: roleFloor, Hooks: hooks})
		add(row{Group: groupThroughput, Role: roleOurs, Hooks: hooks})
		add(row{Group: groupThroughput, Role: roleOurs, Hooks: hooks, Replicas: 2})
	}
	add(row{Group: groupPeers, Role: roleWatermillTuned, share: 4})
	add(row{Group: groupPeers, Role: roleWatermill, share: 20})
	add(row{Group: groupPeers, Role: roleDBOS, share: 100})
	add(row{Group: groupPeers, Role: roleRiver, share: 50})
	for _, role := range []role{roleFloor, roleOurs} {
		add(row{Group: groupStorage, Role: role, Storage: streams.MemoryStorage})
		add(row{Group: groupStorage, Role: role, SyncAlways: true, share: 20})
	}
	for _, size := range journaled {
		add(row{Group: groupSize, Role: roleFloor, Journaled: size})
		add(row{Group: groupSize, Role: roleOurs, Journaled: size})
	}
	return all
}

// provider is who answers the hooks' calls, if they are called over the broker.
func (r row) provider() (role, bool) {
	switch r.Role {
	case roleOurs:
		return roleProvider, true
	case roleLimit, roleFloor, roleWatermillTuned:
		return roleEcho, true
	case roleWatermill, roleDBOS, roleRiver, roleBroker, roleProvider, roleEcho:
	}
	return "", false
}

// keepsDatabase reports whether the variant has no broker.
func (r row) keepsDatabase() bool { return r.Role == roleDBOS || r.Role == roleRiver }

// like reports whether the two differ in their variant, group and replicas only.
func (r row) like(other row) bool {
	return r.Hooks == other.Hooks && r.Storage == other.Storage && r.SyncAlways == other.SyncAlways && r.Journaled == other.Journaled
}

func (r row) String() string {
	name := map[role]string{
		roleLimit: "limit", roleFloor: "floor", roleOurs: "ours",
		roleWatermill: "Watermill, as documented", roleWatermillTuned: "Watermill, tuned",
		roleDBOS: "DBOS on SQLite", roleRiver: "River on SQLite",
	}[r.Role]
	switch r.Group {
	case groupThroughput:
		name += ", " + count(r.Hooks, "hook")
		if r.Replicas > 1 {
			name += ", " + count(r.Replicas, "replica")
		}
	case groupStorage:
		if r.SyncAlways {
			return name + ", synced on every write"
		}
		return name + ", in memory"
	case groupSize:
		name += fmt.Sprintf(", %s journaled", thousands(r.Journaled))
	case groupPeers, groupLatency, groupWork:
	}
	return name
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// wants reports whether the group is to be measured.
func (o *options) wants(g group) bool { return len(o.Only) == 0 || slices.Contains(o.Only, string(g)) }
