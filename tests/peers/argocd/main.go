// Evaluates the health of objects as Argo CD does: JSON values {"object": ..., "script": ...} in, {"status", "message"} out.
//
// Without a script, Argo CD's own script for the kind runs, with Lua's standard libraries; user scripts run without them.
// A kind without a script has no health: {}.
package main

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log"
	"os"
	"strings"

	"github.com/argoproj/argo-cd/v3/resource_customizations"
	lua "github.com/yuin/gopher-lua"
)

type question struct {
	Object map[string]any `json:"object"`
	Script string         `json:"script"`
}

func main() {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var asked question
		if err := in.Decode(&asked); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		health, err := evaluate(asked)
		if err != nil {
			log.Fatal(err)
		}
		if err := out.Encode(health); err != nil {
			log.Fatal(err)
		}
	}
}

func evaluate(asked question) (map[string]string, error) {
	script, libraries := asked.Script, false
	if script == "" {
		version, _ := asked.Object["apiVersion"].(string)
		kind, _ := asked.Object["kind"].(string)
		group, _, _ := strings.Cut(version, "/")
		text, err := resource_customizations.Embedded.ReadFile(group + "/" + kind + "/health.lua")
		if errors.Is(err, fs.ErrNotExist) {
			return map[string]string{}, nil
		} else if err != nil {
			return nil, err
		}
		script, libraries = string(text), true
	}
	state := lua.NewState(lua.Options{SkipOpenLibs: !libraries})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
	} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			return nil, err
		}
	}
	state.SetGlobal("obj", decoded(state, asked.Object))
	if err := state.DoString(script); err != nil {
		return nil, err
	}
	found, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return nil, errors.New("the script returned no table")
	}
	return map[string]string{
		"status": found.RawGetString("status").String(), "message": found.RawGetString("message").String(),
	}, nil
}

func decoded(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case bool:
		return lua.LBool(value)
	case float64:
		return lua.LNumber(value)
	case string:
		return lua.LString(value)
	case []any:
		list := state.NewTable()
		for _, item := range value {
			list.Append(decoded(state, item))
		}
		return list
	case map[string]any:
		table := state.NewTable()
		for key, item := range value {
			table.RawSetString(key, decoded(state, item))
		}
		return table
	}
	return lua.LNil
}
