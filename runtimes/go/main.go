// A function to begin with: CGO_ENABLED=0 go build -o handler . && snowmelt fn deploy hello handler --runtime go
package main

import (
	"context"

	"hello/snowmelt"
)

type event struct {
	Name string `json:"name"`
}

func hello(_ context.Context, given event) (map[string]string, error) {
	if given.Name == "" {
		given.Name = "world"
	}
	return map[string]string{"hello": given.Name}, nil
}

func main() { snowmelt.Serve(hello) }
