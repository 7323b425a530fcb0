// Package snowmelt makes a program a function of the platform: main calls Serve with a handler.
//
// It needs the standard library only. docs/reference/runtimes.md has the dialogue. Invariant: what comes over
// one connection ends at most that connection, and each call gets exactly one answer.
package snowmelt

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
)

const (
	load = iota + 1
	ready
	call
	result
	failed
	_
	_
	end
)

const (
	headerBytes = 8
	mostBytes   = 256 << 20
	// The longest answer that the platform takes.
	mostAnswerBytes = 64 << 20
)

// Handler is a user's function: an event that json can read into E, and an answer that it can write.
type Handler[E, R any] func(ctx context.Context, event E) (R, error)

type answerer func(event json.RawMessage) (json.RawMessage, *failure)

// Serve answers calls with a handler for ever; several at once where the function's concurrency
// says so. It ends the program if there is no channel.
func Serve[E, R any](handler Handler[E, R]) {
	descriptor, err := strconv.Atoi(os.Getenv("SNOWMELT_CHANNEL_FD"))
	if err != nil {
		fatal(errors.New("this program is a function: deploy it with snowmelt fn deploy --runtime go"))
	}
	listener, err := net.FileListener(os.NewFile(uintptr(descriptor), "channel"))
	if err != nil {
		fatal(err)
	}
	for {
		connected, err := listener.Accept()
		if err != nil {
			fatal(err)
		}
		go func() {
			defer connected.Close()
			err := converse(connected, func(event json.RawMessage) (json.RawMessage, *failure) {
				return answer(handler, event)
			})
			if err != nil {
				fmt.Fprintln(os.Stderr, "snowmelt:", err)
			}
		}()
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "snowmelt:", err)
	os.Exit(1)
}

func answer[E, R any](handler Handler[E, R], text json.RawMessage) (value json.RawMessage, why *failure) {
	defer func() {
		if reason := recover(); reason != nil {
			value, why = nil, panicked(reason)
		}
	}()
	var event E
	if err := json.Unmarshal(text, &event); err != nil {
		return nil, &failure{Kind: "type", Exception: "the event does not fit: " + err.Error()}
	}
	made, err := handler(context.Background(), event)
	if err != nil {
		return nil, returned(err)
	}
	value, err = json.Marshal(made)
	if err != nil {
		return nil, &failure{Kind: "type", Exception: fmt.Sprintf("%T is not JSON: %v", made, err)}
	}
	if len(value) > mostAnswerBytes {
		return nil, &failure{Kind: "type", Exception: fmt.Sprintf("its answer has %d bytes, and %d are the most", len(value), mostAnswerBytes)}
	}
	return value, nil
}

func converse(connected net.Conn, answer answerer) error {
	in := bufio.NewReader(connected)
	name := ""
	for loaded := false; ; {
		kind, payload, err := receive(in)
		if err == io.EOF || kind == end {
			return nil
		}
		if err != nil {
			return err
		}
		var message struct {
			Function string          `json:"function"`
			Event    json.RawMessage `json:"event"`
		}
		if err := json.Unmarshal(payload, &message); err != nil {
			return err
		}
		switch {
		case kind == load:
			loaded, name = true, message.Function
			err = send(connected, ready, map[string]int{"pid": os.Getpid()})
		case kind == call && loaded:
			value, why := answer(message.Event)
			if why != nil {
				err = send(connected, failed, why.of(name, message.Event))
			} else {
				err = send(connected, result, value)
			}
		default:
			err = fmt.Errorf("a frame of kind %d came where none was due", kind)
		}
		if err != nil {
			return err
		}
	}
}

func receive(in io.Reader) (byte, []byte, error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(in, header[:]); err != nil {
		return 0, nil, err
	}
	length := binary.LittleEndian.Uint32(header[:4])
	if length > mostBytes {
		return 0, nil, fmt.Errorf("a frame of %d bytes is longer than any may be", length)
	}
	payload := make([]byte, length)
	_, err := io.ReadFull(in, payload)
	return header[4], payload, err
}

func send(out io.Writer, kind byte, message any) error {
	payload, err := json.Marshal(message)
	if err != nil {
		return err
	}
	frame := make([]byte, headerBytes, headerBytes+len(payload))
	binary.LittleEndian.PutUint32(frame, uint32(len(payload)))
	frame[4] = kind
	_, err = out.Write(append(frame, payload...))
	return err
}
