// Selectors compiles and evaluates CEL selectors with Kubernetes' own code.
//
// In (standard input): {"expressions": [text], "devices": [{"driver", "attributes", "capacity",
// "allowMultipleAllocations"}]}, the last three as in resource.k8s.io/v1.
// Out (standard output): one JSON object an expression, a line each: see result.
// With the argument "declarations" it prints the functions that an expression may call instead.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sort"

	"github.com/google/cel-go/cel"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

type device struct {
	Driver                   string                                                    `json:"driver"`
	Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
	Capacity                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity"`
	AllowMultipleAllocations *bool                                                     `json:"allowMultipleAllocations"`
}

type question struct {
	Expressions []string `json:"expressions"`
	Devices     []device `json:"devices"`
}

// outcome is what one device gets; Cost is what the evaluation counted.
type outcome struct {
	Matches bool   `json:"matches"`
	Error   string `json:"error,omitempty"`
	Cost    uint64 `json:"cost"`
}

// result says of one expression why it does not compile, or what its worst case costs and what each device gets.
type result struct {
	Error    string    `json:"error,omitempty"`
	MaxCost  uint64    `json:"maxCost"`
	Outcomes []outcome `json:"outcomes,omitempty"`
}

var features = dracel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true}

func compile(expression string) dracel.CompilationResult {
	envType := environment.NewExpressions
	return dracel.GetCompiler(features).CompileCELExpression(expression, dracel.Options{EnvType: &envType})
}

func judge(expression string, devices []device) (answer result) {
	defer func() {
		// The compiler panics at some expressions, where an API server closes the connection.
		if cause := recover(); cause != nil {
			answer = result{Error: fmt.Sprintf("panic: %v", cause)}
		}
	}()
	compiled := compile(expression)
	if compiled.Error != nil {
		return result{Error: compiled.Error.Detail}
	}
	answer = result{MaxCost: compiled.MaxCost}
	if compiled.MaxCost > resourceapi.CELSelectorExpressionMaxCost {
		return answer // refused as well, and evaluating it may take minutes
	}
	answer.Outcomes = make([]outcome, len(devices))
	for i, each := range devices {
		matches, details, err := compiled.DeviceMatches(context.Background(), dracel.Device{
			Driver:                   each.Driver,
			AllowMultipleAllocations: each.AllowMultipleAllocations,
			Attributes:               each.Attributes,
			Capacity:                 each.Capacity,
		})
		answer.Outcomes[i].Matches = matches
		if err != nil {
			answer.Outcomes[i].Error = err.Error()
		}
		if cost := details.ActualCost(); cost != nil {
			answer.Outcomes[i].Cost = *cost
		}
	}
	return answer
}

type declaration struct {
	Function string   `json:"function"`
	Overload string   `json:"overload"`
	Member   bool     `json:"member"`
	Args     []string `json:"args"`
	Result   string   `json:"result"`
}

func declarations(env *cel.Env) []declaration {
	var found []declaration
	for name, function := range env.Functions() {
		for _, overload := range function.OverloadDecls() {
			entry := declaration{Function: name, Overload: overload.ID(), Member: overload.IsMemberFunction()}
			for _, arg := range overload.ArgTypes() {
				entry.Args = append(entry.Args, arg.String())
			}
			entry.Result = overload.ResultType().String()
			found = append(found, entry)
		}
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].Function < found[j].Function })
	return found
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	if len(os.Args) > 1 && os.Args[1] == "declarations" {
		for _, each := range declarations(compile("true").Environment) {
			if err := encoder.Encode(each); err != nil {
				log.Fatal(err)
			}
		}
		return
	}
	var asked question
	if err := json.NewDecoder(bufio.NewReader(os.Stdin)).Decode(&asked); err != nil {
		log.Fatal(fmt.Errorf("cannot read the question: %w", err))
	}
	for _, expression := range asked.Expressions {
		if err := encoder.Encode(judge(expression, asked.Devices)); err != nil {
			log.Fatal(err)
		}
	}
}
