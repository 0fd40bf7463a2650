package main

import (
	"strings"
	"sync"
	"time"

	"github.com/cloudnativelabs/kube-router/v2/pkg/utils"
)

// For how long an answer of iptables stands. kube-proxy puts rules of its own before ours when it starts; so late are ours first again.
const answerLife = 5 * time.Second

type answer struct {
	value any
	at    time.Time
}

// remembering is iptables without the same question several times a second: each round of the controller looks for its chains and for the
// rules that lead to them, 17 processes, and there is a round for nearly every change of a Pod. The rules of the policies themselves are
// written by iptables-restore, which does not come this way.
type remembering struct {
	utils.IPTablesHandler
	mutex   sync.Mutex
	answers map[string]answer
}

// ask is the answer to a question, from memory while that is young. Only a good answer is remembered: isGood tells.
func ask[T any](r *remembering, question []string, isGood func(T) bool, iptables func() (T, error)) (T, error) {
	key := strings.Join(question, "\x00")
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if known, isKnown := r.answers[key]; isKnown && time.Since(known.at) < answerLife {
		return known.value.(T), nil
	}
	value, err := iptables()
	if err == nil && isGood(value) {
		r.answers[key] = answer{value, time.Now()}
	}
	return value, err
}

func isYes(yes bool) bool { return yes }

func (r *remembering) ChainExists(table, chain string) (bool, error) {
	return ask(r, []string{"chain", table, chain}, isYes, func() (bool, error) {
		return r.IPTablesHandler.ChainExists(table, chain)
	})
}

func (r *remembering) Exists(table, chain string, rule ...string) (bool, error) {
	return ask(r, append([]string{"rule", table, chain}, rule...), isYes, func() (bool, error) {
		return r.IPTablesHandler.Exists(table, chain, rule...)
	})
}

func (r *remembering) List(table, chain string) ([]string, error) {
	return ask(r, []string{"list", table, chain}, func([]string) bool { return true }, func() ([]string, error) {
		return r.IPTablesHandler.List(table, chain)
	})
}

func (r *remembering) AppendUnique(table, chain string, rule ...string) error {
	exists, err := r.Exists(table, chain, rule...)
	if err != nil || exists {
		return err
	}
	return r.Append(table, chain, rule...)
}

func (r *remembering) forget() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	clear(r.answers)
}

func (r *remembering) Insert(table, chain string, position int, rule ...string) error {
	defer r.forget()
	return r.IPTablesHandler.Insert(table, chain, position, rule...)
}

func (r *remembering) Append(table, chain string, rule ...string) error {
	defer r.forget()
	return r.IPTablesHandler.Append(table, chain, rule...)
}

func (r *remembering) Delete(table, chain string, rule ...string) error {
	defer r.forget()
	return r.IPTablesHandler.Delete(table, chain, rule...)
}

func (r *remembering) NewChain(table, chain string) error {
	defer r.forget()
	return r.IPTablesHandler.NewChain(table, chain)
}
