"""What is decided about an Advanced StatefulSet. Pure: times, Pods and claims are arguments."""
