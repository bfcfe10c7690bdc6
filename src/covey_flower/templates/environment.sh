{% for name, value in switches.items() %}
export {{ name }}={{ value }}
{% endfor %}
export FLWR_HOME="$here/flwr"
