#pragma once
#include <NvInfer.h>
nvinfer1::IRuntime *open_runtime(nvinfer1::ILogger &log);
