if ! qanat router --help >/dev/null 2>&1; then
  fail "qanat router is not there: install a Qanat that has it, or render a plan with the example proxy (--proxy example)"
fi
