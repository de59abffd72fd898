// Stands for k8s.io/apiextensions-api, which cannot be fetched; nothing of it is compiled.
module k8s.io/apiextensions-api

go 1.27.0
