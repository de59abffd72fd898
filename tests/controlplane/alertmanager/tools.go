// Pins the Alertmanager that tests send alerts to; it is built by its own package path.

//go:build tools

package tools

import _ "github.com/prometheus/alertmanager/cmd/alertmanager"
