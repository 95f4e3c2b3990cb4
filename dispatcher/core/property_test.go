package core_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

// Whatever happens, in whatever order, every record is one that the design allows, nothing is published that is not
// recorded, nothing is acknowledged that is not settled, and equal commands decide equally: world checks that at every
// step. Once the disturbances end, every dispatch comes to its end.
func TestAnyCourseOfEventsKeepsTheStatusTableAndEnds(t *testing.T) {
	g := readGiven(t)
	rapid.Check(t, func(rt *rapid.T) {
		installation := func(name string) *core.Installed { return g.installed(t, name, plain) }
		start := time.Date(2026, 10, 1, 8, 0, 0, 0, time.UTC)
		w := newWorld(rt, installation("workshop"), start)
		w.stale = func(history []core.Entry) core.Entry {
			if age := rapid.IntRange(0, 3).Draw(rt, "stale by"); age > 0 && age <= len(history) {
				return append([]core.Entry{{}}, history...)[len(history)-age]
			}
			return append([]core.Entry{{}}, history...)[len(history)]
		}
		kills := rapid.SampledFrom([]kill{killNever, killNever, killNever, killBeforeSave, killAfterSave, killBeforeAck})
		refs := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"fact_a", "fact_b", "fact_c"}), 0, 2, rapid.ID[string])
		replies := rapid.SampledFrom([]core.ReplyKind{
			core.ReplyResult, core.ReplyResult, core.ReplyNone, core.ReplyNoResponder, core.ReplyProviderError,
		})
		rt.Repeat(map[string]func(*rapid.T){
			"publish": func(rt *rapid.T) {
				r := writeback([]string{"profile=default"})
				r.Receipt.ReceiptID = rapid.SampledFrom([]string{"receipt_a", "receipt_b"}).Draw(rt, "receipt")
				r.Projection.FactRefs = []string{rapid.SampledFrom([]string{"fact_a", "fact_b"}).Draw(rt, "fact")}
				w.publish("", r)
			},
			"deliver": func(rt *rapid.T) {
				if len(w.messages) > 0 {
					m := rapid.SampledFrom(w.messages).Draw(rt, "message")
					_ = w.deliver(m, kills.Draw(rt, "kill")) // killed is one of the outcomes
				}
			},
			"wake": func(rt *rapid.T) {
				if len(w.wakeUps) > 0 {
					m := rapid.SampledFrom(w.wakeUps).Draw(rt, "wake-up")
					_ = w.wake(m, kills.Draw(rt, "kill"))
				}
			},
			"reply": func(rt *rapid.T) {
				c := w.underWay()
				if c == nil {
					return
				}
				reply := core.Reply{Kind: replies.Draw(rt, "reply"), Data: []byte("{")}
				if _, installed := w.in.Hooks[c.effect.Dispatch.Key.Hook]; !installed {
					return // its host died before the hook was removed
				}
				if reply.Kind == core.ReplyResult && rapid.IntRange(0, 4).Draw(rt, "malformed") > 0 {
					reply = w.answer(c.effect.Dispatch, refs.Draw(rt, "intents")...)
				}
				_ = w.reply(c, reply, kills.Draw(rt, "kill"))
			},
			"advance": func(rt *rapid.T) {
				w.advance(rapid.SampledFrom([]time.Duration{0, time.Second, 4 * time.Second, 10 * time.Minute}).Draw(rt, "by"))
			},
			"fire": func(rt *rapid.T) {
				for _, key := range w.told {
					w.fire(key, w.now)
				}
			},
			"pressure": func(rt *rapid.T) {
				hook := rapid.SampledFrom([]string{"audit.ledger", "brief.digest"}).Draw(rt, "hook")
				w.pressure[hook] = rapid.SampledFrom([]core.Pressure{
					core.PressureNone, core.PressureSaturated, core.PressureSuspended, core.PressureBacklogFull,
				}).Draw(rt, "pressure")
			},
			"redrive": func(rt *rapid.T) {
				for _, key := range w.told {
					_ = w.redrive(key, "alex", kills.Draw(rt, "kill")) // so is a rejection
				}
			},
			"restart": func(rt *rapid.T) {
				w.drain()
				_ = w.die()
				w.in = installation(rapid.SampledFrom([]string{
					"workshop", "workshop", "ledger_removed", "ledger_changed", "fewer_invocations", "fewer_attempts",
				}).Draw(rt, "installation"))
			},
		})
		w.drain()
		_ = w.die()
		w.in, w.stale, w.pressure = installation("workshop"), nil, map[events.HookID]core.Pressure{}
		w.runOut()
	})
}

// drain delivers what is not acknowledged once more, as one must before a registration changes: a record of which the
// wake-up was not scheduled yet is found only by its receipt, and only as long as the receipt plans the same dispatch.
func (w *world) drain() {
	stale := w.stale
	w.stale = nil
	for _, m := range slices.Clone(w.messages) {
		_ = w.deliver(m, killNever)
	}
	w.stale = stale
}

// underWay is the oldest attempt that has not ended.
func (w *world) underWay() *call {
	for _, c := range w.calls {
		if !c.ended {
			return c
		}
	}
	return nil
}

// runOut lets a host work, undisturbed, until there is nothing left to do.
func (w *world) runOut() {
	w.t.Helper()
	for range 10_000 {
		c := w.underWay()
		switch {
		case c != nil:
			_ = w.reply(c, w.answer(c.effect.Dispatch, "fact_a"), killNever)
		case len(w.messages) > 0:
			_ = w.deliver(w.messages[0], killNever)
		case len(w.wakeUps) > 0:
			m := w.wakeUps[0]
			_ = w.wake(m, killNever)
			if len(w.wakeUps) > 0 && w.wakeUps[0] == m { // called or handed back: the others first
				w.wakeUps = append(w.wakeUps[1:], m)
				w.advance(time.Hour)
			}
		case len(w.schedules) > 0:
			w.advance(time.Minute)
		default:
			w.checkEnded()
			return
		}
	}
	w.t.Fatalf("there is always something left to do: %d receipts, %d wake-ups, %d schedules",
		len(w.messages), len(w.wakeUps), len(w.schedules))
}

func (w *world) checkEnded() {
	w.t.Helper()
	for key, history := range w.journal {
		last := history[len(history)-1].Record
		if last.Status == events.StatusRetrying || last.Status == events.StatusRedriven {
			w.t.Fatalf("%s has not ended: %s", key.Hook, w.summary(last))
		}
		for _, intent := range last.Intents {
			if _, stored := w.intents[intent.IntentID]; !stored {
				w.t.Fatalf("%s has ended and an intent of it is not stored", key.Hook)
			}
		}
	}
}
