// Fused fp32 pieces of the demo model for one training thread, each forward and backward: the gated delta net
// with its convolution, norms and gate, for one (head, sequence) after the other.
// Checked against plain torch in tests/demo.
#include <torch/extension.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace {

using torch::Tensor;
constexpr int D = 32;     // head size of keys and values
constexpr int TAPS = 4;   // convolution taps, the last one for the current token
constexpr float EPS = 1e-6f;

inline float sigmoid(float x) { return 1.f / (1.f + std::exp(-x)); }
inline float softplus(float x) { return x > 20.f ? x : std::log1p(std::exp(x)); }

struct Sizes {
  int64_t batch, time, heads;
  int64_t channels() const { return 3 * heads * D; }
};

// What one step leaves behind for the way back.
struct Step {
  float pre[3][D];   // convolution output before SiLU: q, k, v
  float act[3][D];   // after SiLU
  float q[D], k[D];  // unit length (q also scaled)
  float unit_q, unit_k;
  float residual[D];  // v - S'k
  float delta[D];     // beta * residual
  float out[D];
  float beta, decay, rate;
};

struct Inputs {
  const float *mixed, *conv, *z, *b, *a, *a_log, *dt_bias, *norm;
};

void convolve(const Inputs& in, const Sizes& s, int64_t n, int64_t h, int64_t t, const float* taps, Step& step) {
  const int64_t C = s.channels();
  for (int part = 0; part < 3; part++) {
    const float* w = taps + part * TAPS * D;
    float* pre = step.pre[part];
    for (int i = 0; i < D; i++) pre[i] = 0.f;
    for (int j = 0; j < TAPS; j++) {
      const int64_t u = t - (TAPS - 1) + j;
      if (u < 0) continue;
      const float* row = in.mixed + (n * s.time + u) * C + part * s.heads * D + h * D;
      for (int i = 0; i < D; i++) pre[i] += w[j * D + i] * row[i];
    }
    for (int i = 0; i < D; i++) step.act[part][i] = pre[i] * sigmoid(pre[i]);
  }
}

float unit(const float* x) {
  float sum = 0.f;
  for (int i = 0; i < D; i++) sum += x[i] * x[i];
  return 1.f / std::sqrt(sum + EPS);
}

// One step of the recurrence: state (key, value) is changed in place.
void advance(const Inputs& in, const Sizes& s, int64_t n, int64_t h, int64_t t, Step& step, float* state) {
  const int64_t at = (n * s.time + t) * s.heads + h;
  const float scale = 1.f / std::sqrt(float(D));
  step.unit_q = unit(step.act[0]);
  step.unit_k = unit(step.act[1]);
  for (int i = 0; i < D; i++) {
    step.q[i] = step.act[0][i] * step.unit_q * scale;
    step.k[i] = step.act[1][i] * step.unit_k;
  }
  step.beta = sigmoid(in.b[at]);
  step.rate = -std::exp(in.a_log[h]) * softplus(in.a[at] + in.dt_bias[h]);
  step.decay = std::exp(step.rate);
  float recalled[D] = {0.f}, out[D] = {0.f};
  for (int i = 0; i < D; i++)
    for (int j = 0; j < D; j++) {
      state[i * D + j] *= step.decay;
      recalled[j] += step.k[i] * state[i * D + j];
    }
  for (int j = 0; j < D; j++) {
    step.residual[j] = step.act[2][j] - recalled[j];
    step.delta[j] = step.beta * step.residual[j];
  }
  for (int i = 0; i < D; i++)
    for (int j = 0; j < D; j++) {
      state[i * D + j] += step.k[i] * step.delta[j];
      out[j] += step.q[i] * state[i * D + j];
    }
  std::memcpy(step.out, out, sizeof(out));
}

// The taps of one head as [part][tap][channel].
std::vector<float> head_taps(const Inputs& in, const Sizes& s, int64_t h) {
  std::vector<float> taps(3 * TAPS * D);
  for (int part = 0; part < 3; part++)
    for (int i = 0; i < D; i++)
      for (int j = 0; j < TAPS; j++)
        taps[(part * TAPS + j) * D + i] = in.conv[(part * s.heads * D + h * D + i) * TAPS + j];
  return taps;
}

Inputs pointers(const std::vector<Tensor>& t) {
  return {t[0].data_ptr<float>(), t[1].data_ptr<float>(), t[2].data_ptr<float>(), t[3].data_ptr<float>(),
          t[4].data_ptr<float>(), t[5].data_ptr<float>(), t[6].data_ptr<float>(), t[7].data_ptr<float>()};
}

Sizes sizes_of(const std::vector<Tensor>& t) {
  TORCH_CHECK(t[3].dim() == 3 && t[0].size(2) == 3 * t[3].size(2) * D, "delta net: heads of 32 expected");
  return {t[0].size(0), t[0].size(1), t[3].size(2)};
}

struct Grads {
  float *mixed, *conv, *z, *b, *a, *a_log, *dt_bias, *norm;
};

// Way back through gate and norm: fills grad_out, writes dz, adds to dnorm.
void gate_backward(const Inputs& in, const Step& step, const float* gy, const float* z, float* dz, float* dnorm,
                   float* grad_out) {
  float sum = 0.f, dot = 0.f;
  for (int i = 0; i < D; i++) sum += step.out[i] * step.out[i];
  const float inv = 1.f / std::sqrt(sum / D + EPS);
  for (int i = 0; i < D; i++) {
    const float sig = sigmoid(z[i]), gate = z[i] * sig, normed = step.out[i] * inv;
    dz[i] = gy[i] * normed * in.norm[i] * sig * (1.f + z[i] * (1.f - sig));
    dnorm[i] += gy[i] * normed * gate;
    grad_out[i] = gy[i] * in.norm[i] * gate;
    dot += grad_out[i] * step.out[i];
  }
  dot *= inv * inv * inv / D;
  for (int i = 0; i < D; i++) grad_out[i] = inv * grad_out[i] - step.out[i] * dot;
}

// Way back through one recurrence step. grad_state holds dL/dS_t on entry and dL/dS_{t-1} on return.
void step_backward(const Step& step, const float* before, const float* after, const float* grad_out, float* grad_state,
                   float (*grad_act)[D], float& grad_beta, float& grad_rate) {
  float dq[D], dk[D], grad_delta[D] = {0.f}, grad_recalled[D];
  for (int i = 0; i < D; i++) {
    float from_out = 0.f, from_delta = 0.f;
    for (int j = 0; j < D; j++) {
      float& g = grad_state[i * D + j];
      g += step.q[i] * grad_out[j];
      from_out += after[i * D + j] * grad_out[j];
      from_delta += g * step.delta[j];
      grad_delta[j] += g * step.k[i];
    }
    dq[i] = from_out;
    dk[i] = from_delta;
  }
  grad_beta = 0.f;
  for (int j = 0; j < D; j++) {
    grad_beta += grad_delta[j] * step.residual[j];
    grad_act[2][j] = step.beta * grad_delta[j];
    grad_recalled[j] = -step.beta * grad_delta[j];
  }
  float grad_decay = 0.f;
  for (int i = 0; i < D; i++) {
    float from_recalled = 0.f;
    for (int j = 0; j < D; j++) {
      float& g = grad_state[i * D + j];
      g += step.k[i] * grad_recalled[j];
      from_recalled += before[i * D + j] * grad_recalled[j];
      grad_decay += g * before[i * D + j];
      g *= step.decay;
    }
    dk[i] += step.decay * from_recalled;
  }
  grad_rate = grad_decay * step.decay;
  const float scale = 1.f / std::sqrt(float(D));
  float dot_q = 0.f, dot_k = 0.f;
  for (int i = 0; i < D; i++) {
    dot_q += step.act[0][i] * dq[i];
    dot_k += step.act[1][i] * dk[i];
  }
  dot_q *= step.unit_q * step.unit_q;
  dot_k *= step.unit_k * step.unit_k;
  for (int i = 0; i < D; i++) {
    grad_act[0][i] = step.unit_q * scale * (dq[i] - step.act[0][i] * dot_q);
    grad_act[1][i] = step.unit_k * (dk[i] - step.act[1][i] * dot_k);
  }
}

void conv_backward(const Inputs& in, const Sizes& s, int64_t n, int64_t h, int64_t t, const float* taps,
                   const Step& step, const float (*grad_act)[D], float* grad_mixed, float* grad_taps) {
  const int64_t C = s.channels();
  for (int part = 0; part < 3; part++) {
    float dpre[D];
    for (int i = 0; i < D; i++) {
      const float pre = step.pre[part][i], sig = sigmoid(pre);
      dpre[i] = grad_act[part][i] * sig * (1.f + pre * (1.f - sig));
    }
    for (int j = 0; j < TAPS; j++) {
      const int64_t u = t - (TAPS - 1) + j;
      if (u < 0) continue;
      const int64_t at = (n * s.time + u) * C + part * s.heads * D + h * D;
      const float* w = taps + (part * TAPS + j) * D;
      float* dw = grad_taps + (part * TAPS + j) * D;
      for (int i = 0; i < D; i++) {
        grad_mixed[at + i] += w[i] * dpre[i];
        dw[i] += in.mixed[at + i] * dpre[i];
      }
    }
  }
}

}  // namespace

// tensors: mixed (B,T,3HD), conv (3HD,1,4), z (B,T,HD), b, a (B,T,H), A_log, dt_bias (H), norm (D) -> (B,T,HD)
Tensor demo_delta_forward(std::vector<Tensor> tensors) {
  const Inputs in = pointers(tensors);
  const Sizes s = sizes_of(tensors);
  Tensor result = torch::empty_like(tensors[2]);
  float* y = result.data_ptr<float>();
  Step step;
  for (int64_t h = 0; h < s.heads; h++) {
    const std::vector<float> taps = head_taps(in, s, h);
    for (int64_t n = 0; n < s.batch; n++) {
      float state[D * D] = {0.f};
      for (int64_t t = 0; t < s.time; t++) {
        convolve(in, s, n, h, t, taps.data(), step);
        advance(in, s, n, h, t, step, state);
        const int64_t row = ((n * s.time + t) * s.heads + h) * D;
        float sum = 0.f;
        for (int i = 0; i < D; i++) sum += step.out[i] * step.out[i];
        const float inv = 1.f / std::sqrt(sum / D + EPS);
        for (int i = 0; i < D; i++) {
          const float z = in.z[row + i];
          y[row + i] = step.out[i] * inv * in.norm[i] * z * sigmoid(z);
        }
      }
    }
  }
  return result;
}

std::vector<Tensor> demo_delta_backward(std::vector<Tensor> tensors, Tensor grad) {
  const Inputs in = pointers(tensors);
  const Sizes s = sizes_of(tensors);
  std::vector<Tensor> grads;
  for (const Tensor& t : tensors) grads.push_back(torch::zeros_like(t));
  Grads g{grads[0].data_ptr<float>(), grads[1].data_ptr<float>(), grads[2].data_ptr<float>(),
          grads[3].data_ptr<float>(), grads[4].data_ptr<float>(), grads[5].data_ptr<float>(),
          grads[6].data_ptr<float>(), grads[7].data_ptr<float>()};
  const float* gy = grad.data_ptr<float>();
  std::vector<Step> steps(s.time);
  std::vector<float> states((s.time + 1) * D * D);
  for (int64_t h = 0; h < s.heads; h++) {
    const std::vector<float> taps = head_taps(in, s, h);
    std::vector<float> grad_taps(taps.size(), 0.f);
    for (int64_t n = 0; n < s.batch; n++) {
      std::memset(states.data(), 0, sizeof(float) * D * D);
      for (int64_t t = 0; t < s.time; t++) {
        float* state = states.data() + (t + 1) * D * D;
        std::memcpy(state, state - D * D, sizeof(float) * D * D);
        convolve(in, s, n, h, t, taps.data(), steps[t]);
        advance(in, s, n, h, t, steps[t], state);
      }
      float grad_state[D * D] = {0.f};
      for (int64_t t = s.time - 1; t >= 0; t--) {
        const int64_t at = (n * s.time + t) * s.heads + h;
        float grad_out[D], grad_act[3][D], grad_beta, grad_rate;
        gate_backward(in, steps[t], gy + at * D, in.z + at * D, g.z + at * D, g.norm, grad_out);
        const float* before = states.data() + t * D * D;
        step_backward(steps[t], before, before + D * D, grad_out, grad_state, grad_act, grad_beta, grad_rate);
        g.b[at] = grad_beta * steps[t].beta * (1.f - steps[t].beta);
        g.a_log[h] += grad_rate * steps[t].rate;
        g.a[at] = -grad_rate * std::exp(in.a_log[h]) * sigmoid(in.a[at] + in.dt_bias[h]);
        g.dt_bias[h] += g.a[at];
        conv_backward(in, s, n, h, t, taps.data(), steps[t], grad_act, g.mixed, grad_taps.data());
      }
    }
    for (int part = 0; part < 3; part++)
      for (int i = 0; i < D; i++)
        for (int j = 0; j < TAPS; j++)
          g.conv[(part * s.heads * D + h * D + i) * TAPS + j] = grad_taps[(part * TAPS + j) * D + i];
  }
  return grads;
}
