// Checks whether a history of reads and writes of named values is linearisable: whether there is one
// order of all of them, within the times at which each began and ended, in which every read sees
// the last write before it.
//
// The history is on standard input, a JSON object in each line.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// operation is a read, or a write whose answer may have been lost: then it may take effect at any
// time after it began, or never.
type operation struct {
	Client int    `json:"client"`
	Key    string `json:"key"`
	Write  bool   `json:"write"`
	Value  int    `json:"value"`
	Begun  int64  `json:"begun"`
	Ended  int64  `json:"ended"`
}

var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, each := range history {
			key := each.Input.(operation).Key
			byKey[key] = append(byKey[key], each)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() interface{} { return 0 },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		done := input.(operation)
		if done.Write {
			return true, done.Value
		}
		return output.(int) == state.(int), state
	},
}

func main() {
	var history []porcupine.Operation
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var read operation
		if err := json.Unmarshal(lines.Bytes(), &read); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		history = append(history, porcupine.Operation{
			ClientId: read.Client, Input: read, Call: read.Begun, Output: read.Value, Return: read.Ended,
		})
	}
	fmt.Println(porcupine.CheckOperationsTimeout(register, history, time.Minute))
}
