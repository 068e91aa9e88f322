package storetest

import (
	"encoding/json"

	"agentos/runtime/journal"
	"agentos/runtime/store"
)

func orderCases() []Case {
	return []Case{
		{"Orders/none", ordersNone},
		{"Orders/replaced_in_turn", ordersReplaced},
		{"Orders/newer_ones_refuse_a_commit", ordersRefuse},
		{"Orders/one_of_many_wins", ordersRace},
	}
}

func (k *kit) orders(env string) store.Orders {
	k.Helper()
	o, err := k.s.Orders(k.ctx, env)
	k.ok(err)
	return o
}

func (k *kit) order(env string, version int64) {
	k.Helper()
	k.ok(k.s.SetOrders(k.ctx, env, store.Orders{Version: version, Text: json.RawMessage(awkward)}))
}

func ordersNone(k *kit) {
	k.equal("orders", k.orders("prod"), store.Orders{})
	c := k.create(runID(1), ttl)
	tx, none := running(1), int64(0)
	tx.Orders = &none
	k.commit(c.Lease, tx)
}

func ordersReplaced(k *kit) {
	k.order("prod", 1)
	k.order("prod", 2)
	k.order("a b:c", 1)
	for _, version := range []int64{1, 2, 4} {
		k.refused(k.s.SetOrders(k.ctx, "prod", store.Orders{Version: version, Text: json.RawMessage(`{}`)}), store.ErrConflict)
	}
	k.restart()
	got := k.orders("prod")
	k.equal("version", got.Version, int64(2))
	k.sameBytes("text", got.Text, []byte(awkward))
	k.equal("version of the other", k.orders("a b:c").Version, int64(1))
	k.equal("of none", k.orders("c").Version, int64(0))
}

func ordersRefuse(k *kit) {
	for n := range 8 { // some are in each partition
		c := k.create(runID(n), ttl)
		seen := k.orders("prod").Version
		k.order("prod", seen+1)
		tx := running(1)
		tx.Op, tx.Orders = k.op(), &seen
		_, err := k.s.Commit(k.ctx, c.Lease, tx)
		k.refused(err, store.ErrOrders)
		k.types(runID(n), journal.RunCreated)
		now := seen + 1
		tx.Orders = &now
		k.commit(c.Lease, tx)
		k.commit(c.Lease, running(1)) // asks for none
		k.types(runID(n), journal.RunCreated, journal.ModelAnswered, journal.ModelAnswered)
	}
}

func ordersRace(k *kit) {
	handles := k.handles()
	won := make([]bool, 8)
	together(len(won), func(i int) {
		err := handles[i%2].SetOrders(k.ctx, "prod", store.Orders{Version: 1, Text: json.RawMessage(`{}`)})
		won[i] = err == nil
		if err != nil {
			k.refused(err, store.ErrConflict)
		}
	})
	n := 0
	for _, w := range won {
		if w {
			n++
		}
	}
	k.equal("winners", n, 1)
}
