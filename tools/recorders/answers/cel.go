package main

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
	schedulerfeatures "k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

type celDevice struct {
	Driver string             `json:"driver"`
	Device resourceapi.Device `json:"device"`
}

// celLine is one expression with its answers on all devices. The first line of a recording has the devices instead.
type celLine struct {
	Expression   string    `json:"expression"`
	CompileError *string   `json:"compile_error"`
	NewError     *string   `json:"compile_error_new"`
	OutputType   string    `json:"output_type,omitempty"`
	Cost         *uint64   `json:"cost_estimate"`
	Results      []any     `json:"results"`
	ActualCost   []*uint64 `json:"actual_cost"`
}

func celFeaturesOf(gates schedulerfeatures.Features) cel.Features {
	return cel.Features{
		EnableConsumableCapacity: gates.EnableDRAConsumableCapacity,
		EnableListTypeAttributes: gates.EnableDRAListTypeAttributes,
	}
}

func celAnswers(gates schedulerfeatures.Features, version string) answer {
	features := celFeaturesOf(gates)
	compiler := cel.GetCompiler(features)
	var devices []celDevice
	return func(question []byte) ([]byte, error) {
		if devices == nil {
			var head struct {
				Devices []celDevice `json:"devices"`
			}
			if err := json.Unmarshal(question, &head); err != nil {
				return nil, err
			}
			if len(head.Devices) == 0 {
				return nil, errors.New("the first line must have the devices")
			}
			devices = head.Devices
			return celHead(question, features, version)
		}
		var asked celLine
		if err := json.Unmarshal(question, &asked); err != nil {
			return nil, err
		}
		line := evaluate(compiler, asked.Expression, devices)
		for try := 1; try < *tries; try++ {
			again := evaluate(compiler, asked.Expression, devices)
			if !reflect.DeepEqual(line.Results, again.Results) || !reflect.DeepEqual(line.CompileError, again.CompileError) {
				return nil, nil
			}
			forgetUnstableCosts(&line, again)
		}
		return encode(line), nil
	}
}

// celHead is the first line with the version and gates of this program; the devices stay as they are.
func celHead(question []byte, features cel.Features, version string) ([]byte, error) {
	var head struct {
		Features      map[string]bool `json:"cel_features"`
		Compatibility string          `json:"compatibility_version"`
		Devices       json.RawMessage `json:"devices"`
		Environment   string          `json:"environment"`
		Kubernetes    string          `json:"kubernetes"`
	}
	if err := json.Unmarshal(question, &head); err != nil {
		return nil, err
	}
	head.Features = map[string]bool{
		"EnableConsumableCapacity": features.EnableConsumableCapacity,
		"EnableListTypeAttributes": features.EnableListTypeAttributes,
	}
	head.Compatibility = environment.DefaultCompatibilityVersion().String()
	head.Kubernetes = version
	return encode(head), nil
}

func evaluate(compiler interface {
	CompileCELExpression(string, cel.Options) cel.CompilationResult
}, expression string, devices []celDevice) celLine {
	line := celLine{Expression: expression, Results: []any{}, ActualCost: []*uint64{}}
	fresh := environment.NewExpressions
	if compiled := compiler.CompileCELExpression(expression, cel.Options{EnvType: &fresh}); compiled.Error != nil {
		text := compiled.Error.Error()
		line.NewError = &text
	}
	compiled := compiler.CompileCELExpression(expression, cel.Options{})
	if compiled.Error != nil {
		text := compiled.Error.Error()
		line.CompileError = &text
		return line
	}
	line.OutputType, line.Cost = compiled.OutputType.String(), &compiled.MaxCost
	for _, one := range devices {
		matches, details, err := compiled.DeviceMatches(context.Background(), cel.Device{
			Driver:                   one.Driver,
			AllowMultipleAllocations: one.Device.AllowMultipleAllocations,
			Attributes:               one.Device.Attributes,
			Capacity:                 one.Device.Capacity,
		})
		line.ActualCost = append(line.ActualCost, details.ActualCost())
		if err != nil {
			line.Results = append(line.Results, map[string]string{"error": err.Error()})
		} else {
			line.Results = append(line.Results, matches)
		}
	}
	return line
}

// forgetUnstableCosts: a comprehension over a map stops at another entry each time, so its cost says nothing.
func forgetUnstableCosts(line *celLine, again celLine) {
	for i, cost := range line.ActualCost {
		if cost != nil && (again.ActualCost[i] == nil || *cost != *again.ActualCost[i]) {
			line.ActualCost[i] = nil
		}
	}
}
