package main

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// From pkg/apis/resource/validation of Kubernetes 1.37, whose packages cannot be imported, and beyond it the two
// limits that the API documents and no API server checks: 16 tolerations, and no toleration without a key but Exists.

var (
	effects = sets.New(resourcev1.DeviceTaintEffectNone, resourcev1.DeviceTaintEffectNoSchedule,
		resourcev1.DeviceTaintEffectNoExecute)
	operators = sets.New(resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists)
)

func validateClaimSpec(spec *resourcev1.ResourceClaimSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	requests := path.Child("devices", "requests")
	for i := range spec.Devices.Requests {
		request := &spec.Devices.Requests[i]
		at := requests.Index(i)
		if request.Exactly != nil {
			errs = append(errs, validateTolerations(request.Exactly.Tolerations, at.Child("exactly", "tolerations"))...)
		}
		for j := range request.FirstAvailable {
			list := at.Child("firstAvailable").Index(j).Child("tolerations")
			errs = append(errs, validateTolerations(request.FirstAvailable[j].Tolerations, list)...)
		}
	}
	return errs
}

func validateTolerations(tolerations []resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(tolerations) > resourcev1.DeviceTolerationsMaxLength {
		errs = append(errs, field.TooMany(path, len(tolerations), resourcev1.DeviceTolerationsMaxLength))
	}
	for i := range tolerations {
		errs = append(errs, validateToleration(&tolerations[i], path.Index(i))...)
	}
	return errs
}

func validateToleration(toleration *resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if toleration.Key != "" {
		errs = append(errs, validateKey(toleration.Key, path.Child("key"))...)
	} else if operators.Has(toleration.Operator) && toleration.Operator != resourcev1.DeviceTolerationOpExists {
		errs = append(errs, field.Invalid(path.Child("operator"), toleration.Operator, `must be "Exists" when key is empty`))
	}
	switch toleration.Operator {
	case resourcev1.DeviceTolerationOpExists:
		if toleration.Value != "" {
			errs = append(errs, field.Invalid(path.Child("value"), toleration.Value, "must be empty for operator `Exists`"))
		}
	case resourcev1.DeviceTolerationOpEqual:
		errs = append(errs, validateValue(toleration.Value, path.Child("value"))...)
	case "":
		errs = append(errs, field.Required(path.Child("operator"), "")) // API servers default it before they ask
	default:
		errs = append(errs, field.NotSupported(path.Child("operator"), toleration.Operator, sets.List(operators)))
	}
	if toleration.Effect != "" && !effects.Has(toleration.Effect) {
		errs = append(errs, field.NotSupported(path.Child("effect"), toleration.Effect, sets.List(effects)))
	}
	return errs
}

func validateSliceSpec(spec *resourcev1.ResourceSliceSpec, path *field.Path) field.ErrorList {
	devices := path.Child("devices")
	maximum := resourcev1.ResourceSliceMaxDevices
	if needsSmallSlice(spec.Devices) {
		maximum = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	if len(spec.Devices) > maximum {
		return field.ErrorList{field.TooMany(devices, len(spec.Devices), maximum)}
	}
	var errs field.ErrorList
	for i := range spec.Devices {
		errs = append(errs, validateTaints(spec.Devices[i].Taints, devices.Index(i).Child("taints"))...)
	}
	return errs
}

// needsSmallSlice says whether a device uses a feature that halves the number of devices in a slice.
func needsSmallSlice(devices []resourcev1.Device) bool {
	for i := range devices {
		if len(devices[i].Taints) > 0 || len(devices[i].ConsumesCounters) > 0 {
			return true
		}
		for _, attribute := range devices[i].Attributes {
			if attribute.BoolValues != nil || attribute.IntValues != nil || attribute.StringValues != nil ||
				attribute.VersionValues != nil {
				return true
			}
		}
	}
	return false
}

func validateTaints(taints []resourcev1.DeviceTaint, path *field.Path) field.ErrorList {
	if len(taints) > resourcev1.DeviceTaintsMaxLength {
		return field.ErrorList{field.TooMany(path, len(taints), resourcev1.DeviceTaintsMaxLength)}
	}
	var errs field.ErrorList
	for i := range taints {
		errs = append(errs, validateTaint(&taints[i], path.Index(i))...)
	}
	return errs
}

func validateTaint(taint *resourcev1.DeviceTaint, path *field.Path) field.ErrorList {
	errs := validateKey(taint.Key, path.Child("key"))
	errs = append(errs, validateValue(taint.Value, path.Child("value"))...)
	switch {
	case taint.Effect == "":
		errs = append(errs, field.Required(path.Child("effect"), ""))
	case !effects.Has(taint.Effect):
		errs = append(errs, field.NotSupported(path.Child("effect"), taint.Effect, sets.List(effects)))
	}
	return errs
}

func validateRuleSpec(spec *resourcev1.DeviceTaintRuleSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if selector := spec.DeviceSelector; selector != nil {
		at := path.Child("deviceSelector")
		if selector.Driver != nil {
			errs = append(errs, validateDriver(*selector.Driver, at.Child("driver"))...)
		}
		if selector.Pool != nil {
			errs = append(errs, validatePool(*selector.Pool, at.Child("pool"))...)
		}
		if selector.Device != nil {
			errs = append(errs, invalidEach(*selector.Device, validation.IsDNS1123Label(*selector.Device), at.Child("device"))...)
		}
	}
	return append(errs, validateTaint(&spec.Taint, path.Child("taint"))...)
}

func validateDriver(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > resourcev1.DriverNameMaxLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.DriverNameMaxLength))
	}
	return append(errs, invalidEach(name, validation.IsDNS1123Subdomain(strings.ToLower(name)), path)...)
}

func validatePool(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > resourcev1.PoolNameMaxLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.PoolNameMaxLength))
	}
	for part := range strings.SplitSeq(name, "/") {
		errs = append(errs, invalidEach(part, validation.IsDNS1123Subdomain(part), path)...)
	}
	return errs
}

func validateKey(key string, path *field.Path) field.ErrorList {
	return invalidEach(key, validation.IsQualifiedName(key), path)
}

func validateValue(value string, path *field.Path) field.ErrorList {
	return invalidEach(value, validation.IsValidLabelValue(value), path)
}

func invalidEach(value string, messages []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, message := range messages {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}
