package main

import (
	"strings"
	"sync"
	"time"

	"github.com/cloudnativelabs/kube-router/v2/pkg/utils"
)

// How long an answer is kept. kube-proxy puts rules of its own before the controller's when it starts; so late are these first again.
const ttl = 5 * time.Second

type entry struct {
	value any
	at    time.Time
}

// cachedIPTables does not start iptables for the same question several times a second: each round of the controller asks for its chains and
// for the rules that lead to them, and there is a round for nearly every change of a Pod. The rules of the policies themselves are written by
// iptables-restore, which does not come this way.
type cachedIPTables struct {
	utils.IPTablesHandler
	mutex   sync.Mutex
	entries map[string]entry
}

// cached gives the answer that is kept, or asks. Only what isGood is kept, so that what is missing is looked for again.
func cached[T any](c *cachedIPTables, question []string, isGood func(T) bool, ask func() (T, error)) (T, error) {
	key := strings.Join(question, "\x00")
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if known, isKnown := c.entries[key]; isKnown && time.Since(known.at) < ttl {
		return known.value.(T), nil
	}
	value, err := ask()
	if err == nil && isGood(value) {
		c.entries[key] = entry{value, time.Now()}
	}
	return value, err
}

func isYes(yes bool) bool { return yes }

func (c *cachedIPTables) ChainExists(table, chain string) (bool, error) {
	return cached(c, []string{"chain", table, chain}, isYes, func() (bool, error) {
		return c.IPTablesHandler.ChainExists(table, chain)
	})
}

func (c *cachedIPTables) Exists(table, chain string, rule ...string) (bool, error) {
	return cached(c, append([]string{"rule", table, chain}, rule...), isYes, func() (bool, error) {
		return c.IPTablesHandler.Exists(table, chain, rule...)
	})
}

func (c *cachedIPTables) List(table, chain string) ([]string, error) {
	return cached(c, []string{"list", table, chain}, func([]string) bool { return true }, func() ([]string, error) {
		return c.IPTablesHandler.List(table, chain)
	})
}

func (c *cachedIPTables) AppendUnique(table, chain string, rule ...string) error {
	exists, err := c.Exists(table, chain, rule...)
	if err != nil || exists {
		return err
	}
	return c.Append(table, chain, rule...)
}

func (c *cachedIPTables) invalidate() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	clear(c.entries)
}

func (c *cachedIPTables) Insert(table, chain string, position int, rule ...string) error {
	defer c.invalidate()
	return c.IPTablesHandler.Insert(table, chain, position, rule...)
}

func (c *cachedIPTables) Append(table, chain string, rule ...string) error {
	defer c.invalidate()
	return c.IPTablesHandler.Append(table, chain, rule...)
}

func (c *cachedIPTables) Delete(table, chain string, rule ...string) error {
	defer c.invalidate()
	return c.IPTablesHandler.Delete(table, chain, rule...)
}

func (c *cachedIPTables) NewChain(table, chain string) error {
	defer c.invalidate()
	return c.IPTablesHandler.NewChain(table, chain)
}
