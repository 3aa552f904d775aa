#pragma once
static const int kLanes = __AMDGCN_WAVEFRONT_SIZE;
