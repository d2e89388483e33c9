package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	internalapi "k8s.io/kubernetes/pkg/apis/resource"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	"k8s.io/kubernetes/pkg/apis/resource/validation"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	schedulerfeatures "k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

// heldDevice is a device of a claim that has its allocation already.
type heldDevice struct {
	Driver           string                                          `json:"driver"`
	Pool             string                                          `json:"pool"`
	Device           string                                          `json:"device"`
	ShareID          *types.UID                                      `json:"shareID,omitempty"`
	AdminAccess      *bool                                           `json:"adminAccess,omitempty"`
	ConsumedCapacity map[resourceapi.QualifiedName]resource.Quantity `json:"consumedCapacity,omitempty"`
}

// allocatorLine is one line of a recording. The question's objects pass through byte by byte.
type allocatorLine struct {
	ID         int             `json:"id"`
	Kubernetes string          `json:"kubernetes"`
	Profile    string          `json:"profile"`
	Features   []string        `json:"features"`
	APIValid   bool            `json:"api_valid"`
	APIErrors  []string        `json:"api_errors,omitempty"`
	Node       json.RawMessage `json:"node"`
	Slices     json.RawMessage `json:"slices"`
	Classes    json.RawMessage `json:"classes"`
	Allocated  json.RawMessage `json:"allocated"`
	Claims     json.RawMessage `json:"claims"`
	Result     allocatorResult `json:"result"`
	Stats      allocatorStats  `json:"stats"`
}

type allocatorResult struct {
	Allocation []resourceapi.AllocationResult `json:"allocation"`
	Error      string                         `json:"error"`
	ErrorKind  string                         `json:"error_kind,omitempty"`
}

type allocatorStats struct {
	AllocateOne int64  `json:"allocateOne"`
	Variant     string `json:"variant"`
}

type allocatorQuestion struct {
	Node struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
		// Features that the kubelet of the node declares.
		DeclaredFeatures []string `json:"declaredFeatures"`
	} `json:"node"`
	Slices    []*resourceapi.ResourceSlice `json:"slices"`
	Classes   []*resourceapi.DeviceClass   `json:"classes"`
	Allocated []heldDevice                 `json:"allocated"`
	Claims    []*resourceapi.ResourceClaim `json:"claims"`
}

type classes struct {
	lister resourcelisters.DeviceClassLister
}

func (c classes) List() ([]*resourceapi.DeviceClass, error)          { return c.lister.List(labels.Everything()) }
func (c classes) Get(name string) (*resourceapi.DeviceClass, error) { return c.lister.Get(name) }

func allocatorAnswers(gates schedulerfeatures.Features, version string) answer {
	features := dynamicresources.AllocatorFeatures(gates)
	celFeatures := celFeaturesOf(gates)
	return func(question []byte) ([]byte, error) {
		var line allocatorLine
		if err := json.Unmarshal(question, &line); err != nil {
			return nil, err
		}
		line.Kubernetes = version
		problems, err := apiErrors(question)
		if err != nil {
			return nil, err
		}
		line.APIValid, line.APIErrors = len(problems) == 0, problems
		var first []byte
		for try := 0; try < *tries; try++ {
			line.Result, line.Stats, err = allocate(question, features, cel.NewCache(10, celFeatures))
			if err != nil {
				return nil, err
			}
			text := encode(line)
			if first == nil {
				first = text
			} else if !bytes.Equal(first, text) {
				return nil, nil
			}
		}
		return first, nil
	}
}

// allocate decodes the question each time: the allocator may keep what it is given.
func allocate(raw []byte, features structured.Features, compiled *cel.Cache) (result allocatorResult, stats allocatorStats, err error) {
	var question allocatorQuestion
	if err := json.Unmarshal(raw, &question); err != nil {
		return result, stats, err
	}
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, class := range question.Classes {
		if err := index.Add(class); err != nil {
			return result, stats, err
		}
	}
	ctx := context.Background()
	allocator, err := structured.NewAllocator(
		ctx, features, stateOf(question.Allocated), classes{resourcelisters.NewDeviceClassLister(index)}, question.Slices, compiled)
	if err != nil {
		return result, stats, err
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: question.Node.Name, Labels: question.Node.Labels},
		Status:     corev1.NodeStatus{DeclaredFeatures: question.Node.DeclaredFeatures},
	}
	allocation, failure := allocator.Allocate(ctx, node, question.Claims)
	result.Allocation = withNumberedShares(allocation)
	if failure != nil {
		result.Error, result.ErrorKind = failure.Error(), "fatal"
		if errors.Is(failure, structured.ErrFailedAllocationOnNode) {
			result.ErrorKind = "node"
		}
	}
	// Both methods belong to internal types of the allocator's variants.
	value := reflect.ValueOf(allocator)
	stats.AllocateOne = value.MethodByName("GetStats").Call(nil)[0].FieldByName("NumAllocateOneInvocations").Int()
	stats.Variant = fmt.Sprint(value.MethodByName("Channel").Call(nil)[0].Interface())
	return result, stats, nil
}

// stateOf counts held devices as the scheduler's plugin does: admin access holds nothing, a share ID means a share.
func stateOf(held []heldDevice) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, one := range held {
		id := structured.MakeDeviceID(one.Driver, one.Pool, one.Device)
		switch {
		case one.AdminAccess != nil && *one.AdminAccess:
		case one.ShareID != nil:
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, one.ShareID))
			if one.ConsumedCapacity != nil {
				state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, one.ConsumedCapacity))
			}
		default:
			state.AllocatedDevices.Insert(id)
		}
	}
	return state
}

// withNumberedShares replaces random share IDs by their place in the result.
func withNumberedShares(results []resourceapi.AllocationResult) []resourceapi.AllocationResult {
	number := 0
	for i := range results {
		for j := range results[i].Devices.Results {
			if device := &results[i].Devices.Results[j]; device.ShareID != nil {
				number++
				id := types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", number))
				device.ShareID = &id
			}
		}
	}
	return results
}

// apiErrors returns what the API server would say to the question's objects.
func apiErrors(raw []byte) (texts []string, err error) {
	var question allocatorQuestion
	if err := json.Unmarshal(raw, &question); err != nil {
		return nil, err
	}
	note := func(kind, name string, errors field.ErrorList) {
		for _, one := range errors {
			texts = append(texts, kind+" "+name+": "+one.Error())
		}
	}
	for _, slice := range question.Slices {
		var internal internalapi.ResourceSlice
		if err := legacyscheme.Scheme.Convert(slice, &internal, nil); err != nil {
			return nil, err
		}
		note("ResourceSlice", slice.Name, validation.ValidateResourceSlice(&internal))
	}
	for _, class := range question.Classes {
		var internal internalapi.DeviceClass
		if err := legacyscheme.Scheme.Convert(class, &internal, nil); err != nil {
			return nil, err
		}
		note("DeviceClass", class.Name, validation.ValidateDeviceClass(&internal))
	}
	for _, claim := range question.Claims {
		var internal internalapi.ResourceClaim
		if err := legacyscheme.Scheme.Convert(claim, &internal, nil); err != nil {
			return nil, err
		}
		note("ResourceClaim", claim.Name, validation.ValidateResourceClaim(&internal))
	}
	return texts, nil
}
