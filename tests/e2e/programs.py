"""Handlers in other languages that do what the event says, as files to deploy."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

RUNTIMES = Path(__file__).resolve().parents[2] / "runtimes"

NODE = """
import { openSync, writeFileSync } from "node:fs";
let calls = 0;
function deep(what) {
  throw new TypeError(`no ${what}`);
}
export async function handler(event) {
  calls += 1;
  switch (event.do) {
    case "raise": return deep("way");
    case "hang": for (;;);
    case "eat": { const held = []; for (;;) held.push(new Array(1 << 16).fill(calls)); }
    case "exit": process.exit(7);
    case "fill": for (let i = 0; ; i++) writeFileSync(`/tmp/${i}`, Buffer.alloc(1 << 20));
    case "open": for (;;) openSync("/dev/null");
    case "function": return () => 1;
    case "print": console.log("printed by node"); return null;
  }
  return { event, calls };
}
"""

JAVA = """
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

public class Handler {
    private long calls = 0;

    private static Object deep(String what) {
        throw new IllegalStateException("no " + what);
    }

    public Object handle(Map<String, Object> event) throws Exception {
        calls++;
        List<Object> held = new ArrayList<>();
        switch (String.valueOf(event.get("do"))) {
            case "raise": return deep("way");
            case "hang": while (true) { Thread.onSpinWait(); }
            case "eat": while (true) { held.add(new long[1 << 17]); }
            case "exit": System.exit(7);
            case "fill":
                try (var out = new FileOutputStream("/tmp/big")) {
                    while (true) { out.write(new byte[1 << 20]); }
                }
            case "open": while (true) { held.add(new FileInputStream("/dev/null")); }
            case "function": return new Object();
            case "print": System.out.println("printed by java"); return null;
            default: return Map.of("event", event, "calls", calls);
        }
    }
}
"""

GO = """
package main

import (
	"context"
	"fmt"
	"os"

	"hello/snowmelt"
)

type event struct {
	Do   string `json:"do"`
	Name string `json:"name,omitempty"`
}

type answer struct {
	Event event `json:"event"`
	Calls int   `json:"calls"`
}

var calls int

func deep(list []int) int { return list[len(list)] }

func handler(_ context.Context, given event) (any, error) {
	calls++
	switch given.Do {
	case "raise":
		return deep([]int{1}), nil
	case "error":
		return nil, fmt.Errorf("cannot: %w", os.ErrNotExist)
	case "hang":
		for {
		}
	case "eat":
		var held [][]byte
		for {
			one := make([]byte, 1<<20)
			for i := range one {
				one[i] = 1
			}
			held = append(held, one)
		}
	case "exit":
		os.Exit(7)
	case "fill":
		file, err := os.Create("/tmp/big")
		for err == nil {
			_, err = file.Write(make([]byte, 1<<20))
		}
		return nil, err
	case "open":
		var held []*os.File
		for {
			file, err := os.Open("/dev/null")
			if err != nil {
				return nil, err
			}
			held = append(held, file)
		}
	case "function":
		return func() {}, nil
	case "print":
		fmt.Println("printed by go")
		return nil, nil
	}
	return answer{given, calls}, nil
}

func main() { snowmelt.Serve(handler) }
"""


@dataclass(frozen=True)
class Language:
    """The properties of a language that tests need."""

    name: str
    deploy: tuple[object, ...]
    raised: tuple[str, ...]


def language(name: str, folder: Path) -> Language:
    """Writes the handler; skips the test if this machine cannot run it."""
    tool = {"node": "/usr/bin/node", "java": "/usr/bin/java", "go": shutil.which("go")}[name]
    if not tool or not Path(tool).exists():
        pytest.skip(f"{name} is not installed on this machine (scripts/setup e2e installs it)")
    return {"node": _node, "java": _java, "go": _go}[name](folder)


def _node(folder: Path) -> Language:
    (folder / "handler.mjs").write_text(NODE)
    raised = ("TypeError: no way", "handler.mjs", "deep()")
    return Language("node", (folder / "handler.mjs",), raised)


def _java(folder: Path) -> Language:
    if not shutil.which("javac"):
        pytest.skip("a JDK is not installed on this machine (scripts/setup e2e installs it)")
    (folder / "Handler.java").write_text(JAVA)
    raised = ("IllegalStateException: no way", "Handler.java", "Handler.deep()")
    return Language("java", (folder / "Handler.java",), raised)


def _go(folder: Path) -> Language:
    source = folder / "go"
    shutil.copytree(RUNTIMES / "go", source)
    (source / "main.go").write_text(GO)
    build_go(source)
    raised = ("panic: runtime error: index out of range", "main.go", "main.deep()")
    return Language("go", (source / "handler", "--runtime", "go"), raised)


def build_go(folder: Path) -> None:
    """Builds a static `handler` from a module."""
    import os

    environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GOPROXY": "off"}
    subprocess.run(["go", "build", "-o", "handler", "."], cwd=folder, env=environment, check=True)
