package main

import (
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

func newConsoleCore(w io.Writer, config zap.Config) zapcore.Core {
	return zapcore.NewCore(zapcore.NewConsoleEncoder(config.EncoderConfig), zapcore.Lock(zapcore.AddSync(w)), zap.InfoLevel)
}
