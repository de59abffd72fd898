package main

import (
	"context"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// validator answers reviews of every kind that carries device taints or tolerations.
type validator struct {
	decoder admission.Decoder
}

var _ admission.Handler = &validator{}

// Handle decodes the object and answers 422 with every fault in it, as an API server does.
func (v *validator) Handle(_ context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	if req.Resource.Group != resourcev1.GroupName || req.Resource.Version != resourcev1.SchemeGroupVersion.Version {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("unexpected resource %s", req.Resource))
	}
	errs, err := v.validate(req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if len(errs) > 0 {
		return invalid(req, errs)
	}
	return admission.Allowed("")
}

func (v *validator) validate(req admission.Request) (field.ErrorList, error) {
	switch req.Resource.Resource {
	case "resourceclaims":
		claim := &resourcev1.ResourceClaim{}
		if err := v.decoder.Decode(req, claim); err != nil {
			return nil, err
		}
		return validateClaimSpec(&claim.Spec, field.NewPath("spec")), nil
	case "resourceclaimtemplates":
		template := &resourcev1.ResourceClaimTemplate{}
		if err := v.decoder.Decode(req, template); err != nil {
			return nil, err
		}
		return validateClaimSpec(&template.Spec.Spec, field.NewPath("spec", "spec")), nil
	case "resourceslices":
		slice := &resourcev1.ResourceSlice{}
		if err := v.decoder.Decode(req, slice); err != nil {
			return nil, err
		}
		return validateSliceSpec(&slice.Spec, field.NewPath("spec")), nil
	case "devicetaintrules":
		rule := &resourcev1.DeviceTaintRule{}
		if err := v.decoder.Decode(req, rule); err != nil {
			return nil, err
		}
		return validateRuleSpec(&rule.Spec, field.NewPath("spec")), nil
	}
	return nil, fmt.Errorf("unexpected resource %s", req.Resource)
}

func invalid(req admission.Request, errs field.ErrorList) admission.Response {
	kind := schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}
	status := apierrors.NewInvalid(kind, req.Name, errs).Status()
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: false, Result: &status}}
}
