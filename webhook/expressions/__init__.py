"""CEL, and nobody else imports it. What an expression is for is its caller's business."""
